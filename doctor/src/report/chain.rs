//! Attachments, programs and maps, as reports have them.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{Certainty, Place};

/// One attachment of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Where.
    pub place: Place,
    /// Its turn among those at the place: 0 runs first.
    pub order: u32,
    /// The program.
    pub program: u32,
    /// How it is attached.
    pub manner: Manner,
    /// How it stands to the agent of this node.
    pub standing: Standing,
    /// Why it is stale; absent: it isn't, as far as can be told.
    pub stale: Option<Stale>,
}

/// How a program stands to this project's agent of this node: known, not guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The agent's: what is pinned names it.
    Current,
    /// This project's, and not what is pinned.
    Earlier,
    /// This project's, of another node that this kernel runs too.
    OtherNode,
    /// Another project's.
    Foreign,
}

/// How a program is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Manner {
    /// The way of before links: it stays until it is detached or the cgroup or device goes, whatever process ends.
    Legacy {
        /// `BPF_F_ALLOW_MULTI` and the like.
        flags: u32,
    },
    /// By a link, which lives while it is pinned or held.
    Link {
        /// The link.
        id: u32,
        /// Where it is pinned, as far as bpffs mounts can be seen.
        pinned_at: Vec<PathBuf>,
        /// Processes that hold it open.
        held_by: Vec<Holder>,
    },
    /// As a filter of clsact.
    Filter {
        /// Filters run in the order of their priorities.
        priority: u16,
        /// Its number among those of its priority.
        handle: u32,
        /// Its chain; those that are not 0 run only when a filter says so.
        chain: u32,
    },
    /// To XDP, without a link.
    Xdp {
        /// Where it runs.
        mode: XdpMode,
    },
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Legacy { .. } => f.write_str("legacy"),
            Self::Link {
                id,
                pinned_at,
                held_by,
            } => {
                write!(f, "link {id}")?;
                match (pinned_at.first(), held_by.first()) {
                    (Some(path), _) => write!(f, ", pinned at {}", path.display()),
                    (None, Some(holder)) => write!(f, ", held by {holder}"),
                    (None, None) => f.write_str(", neither pinned nor held by a process that can be seen"),
                }
            }
            Self::Filter { priority, handle, .. } => write!(f, "filter {priority}:{handle:#x}"),
            Self::Xdp { mode } => f.write_str(match mode {
                XdpMode::Native => "xdp, in the driver",
                XdpMode::Generic => "xdp, generic",
                XdpMode::Hardware => "xdp, on the device",
            }),
        }
    }
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// After the driver.
    Generic,
    /// On the device itself.
    Hardware,
}

/// A process that holds something open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its id, as the doctor sees it.
    pub pid: u32,
    /// Its command.
    pub command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.command, self.pid)
    }
}

/// Why an attachment is stale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stale {
    /// How sure that is.
    pub certainty: Certainty,
    /// The program that has taken its place, as far as there is one.
    pub newer: Option<u32>,
    /// What speaks for it, one sentence each.
    pub reasons: Vec<String>,
}

/// A program that is loaded and not attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loose {
    /// The program.
    pub program: u32,
    /// How it stands to the agent of this node.
    pub standing: Standing,
    /// Arrays of programs that it is in: other programs jump to it.
    pub called_from: Vec<u32>,
    /// Whether nothing that can be seen keeps it loaded. Then something does that can't: mostly a cgroup that was
    /// removed while sockets of it live on, at which it still runs.
    pub unexplained: bool,
    /// Of an earlier load of this project's: whether it would do anything if it ran. Of others: not known.
    pub armed: Option<bool>,
    /// How tail calls lead to it; absent: it is in no array of programs that a program uses.
    #[serde(default)]
    pub tail_called: Option<TailCalled>,
}

impl Loose {
    /// The attached program from which tail calls reach it: then it runs, as if it were attached there.
    pub fn in_use(&self) -> Option<&Entry> {
        self.tail_called.as_ref()?.from.as_ref()
    }
}

/// How tail calls lead to a program that is attached nowhere itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TailCalled {
    /// A program that goes on as it.
    pub caller: u32,
    /// The array of programs through which that does.
    pub map: u32,
    /// Where the calls begin; absent: no caller is attached anywhere that can be seen, or reached from one that is.
    pub from: Option<Entry>,
}

/// The attached program at which tail calls begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The program.
    pub program: u32,
    /// Where it is attached, first of several places.
    pub place: Place,
}

/// An array of programs: what uses it goes on as any program in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgArray {
    /// The map.
    pub map: u32,
    /// Programs that use it, attached or not.
    pub callers: Vec<u32>,
    /// Programs in it; of one that can't be read, which is said in [`Report::blind`](super::Report::blind), not all.
    pub programs: Vec<u32>,
}

/// A loaded program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its id.
    pub id: u32,
    /// Its name: at most 15 bytes, chosen by its loader, not unique.
    pub name: String,
    /// Its type, as `cgroup_sock_addr`.
    pub kind: String,
    /// Hash of its instructions in hexadecimal: equal for two loads of the same program.
    pub tag: String,
    /// When it was loaded, in nanoseconds since the machine started.
    pub loaded_at: Option<u64>,
    /// How long ago that was, in seconds.
    pub loaded_seconds_ago: Option<u64>,
    /// User id of who loaded it.
    pub uid: u32,
    /// Ids of the maps that it uses, in its own order.
    pub maps: Vec<u32>,
    /// Where it is pinned.
    pub pinned_at: Vec<PathBuf>,
    /// Processes that hold it open.
    pub held_by: Vec<Holder>,
    /// Whose it is.
    pub owner: Owner,
}

impl Program {
    /// Id and name, for sentences.
    pub fn title(&self) -> String {
        if self.name.is_empty() {
            format!("program {}", self.id)
        } else {
            format!("program {} ({})", self.id, self.name)
        }
    }
}

/// Whose a program is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Who.
    pub whose: Whose,
    /// Whether that is guessed, from names and paths that any project may use. Only our own programs are known.
    pub guess: bool,
    /// What it was told by.
    pub because: Vec<String>,
}

/// Who loads programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// This project's agent, of any version.
    Plumbline,
    /// Cilium.
    Cilium,
    /// Calico.
    Calico,
    /// systemd, which firewalls and restricts units.
    Systemd,
    /// None that is known here.
    Unknown,
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plumbline => "Plumbline",
            Self::Cilium => "Cilium",
            Self::Calico => "Calico",
            Self::Systemd => "systemd",
            Self::Unknown => "unknown",
        })
    }
}

/// A map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// Its id.
    pub id: u32,
    /// Its name: at most 15 bytes, chosen by its loader, not unique.
    pub name: String,
    /// Its type, as `hash`.
    pub kind: String,
    /// Size of keys in bytes.
    pub key_size: u32,
    /// Size of values in bytes.
    pub value_size: u32,
    /// Most entries.
    pub max_entries: u32,
    /// Where it is pinned, as far as bpffs mounts can be seen.
    pub pinned_at: Vec<PathBuf>,
    /// Processes that hold it open.
    pub held_by: Vec<Holder>,
    /// What it holds, if its layout is known: as `Cilium services v2 (IPv4)`.
    pub layout: Option<String>,
}
