//! What is attached anywhere on this machine that decides where packets and connections go: whose it is, in which
//! order it runs, who holds it. Read from the kernel, by ids; no [`Datapath`](lb_loader::Datapath) is needed, and nothing
//! is changed.
//!
//! ```text
//! /proc/self/mountinfo ─▶ cgroups: every one from the root of the hierarchy on, by handle where no mount shows it ─┐
//! ids of links ─────────▶ what each carries, and where ─────────────────────────────────────────────────────────────┤
//! rtnetlink, bpf_mprog ─▶ devices: XDP, TCX, filters of clsact ─────────────────────────────────────────────────────┼─▶ Inventory
//! ids of programs ──────▶ those that are attached nowhere that can be seen ─────────────────────────────────────────┤
//! ids of maps ──────────▶ arrays of programs: what jumps through each, and to what ─────────────────────────────────┤
//! bpffs, /proc/*/fd ────▶ pins and holders ─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `look` | [`inventory`]: puts all of it together |
//! | `attached` | attachments, by cgroup, by device ([`lb_loader::device_programs`]), by link |
//! | `cgroups` | the hierarchy of cgroups, hidden ones included, and what is attached to each |
//! | `programs` | descriptions of programs and maps, and whose programs are |
//! | `unattached` | programs that are attached nowhere that can be seen |
//! | `prog_arrays` | arrays of programs: those that tail calls lead to |
//! | `holders` | processes that hold programs, maps and links |
//! | `pinned` | programs, maps and links that are pinned |
//! | `names` | names of the kernel's numbers |

pub(crate) mod attached;
pub(crate) mod cgroups;
pub(crate) mod holders;
mod look;
mod names;
pub(crate) mod pinned;
mod prog_arrays;
pub(crate) mod programs;
pub(crate) mod unattached;

use std::{fmt, path::PathBuf, time::Duration};

use lb_loader::{Blind, Direction, Layer, Ownership, XdpMode};

pub use self::{look::inventory, programs::programs_of_this_node};

/// Where to look, and what counts as current.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// A folder of a cgroup2 file system: the node's cgroup. All cgroups of its hierarchy are looked at, those above
    /// it and beside it too.
    pub cgroup: PathBuf,
    /// A bpffs. Programs that are attached by links pinned there below `plumbline`, or that use the META pinned there,
    /// are [`Ownership::Current`].
    pub bpffs: Option<PathBuf>,
    /// Ids of further programs that are.
    pub current: Vec<u32>,
}

/// Everything that was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inventory {
    /// Attachments: cgroups from the root down, each hook's in the order in which they run; then devices, by index,
    /// XDP before TCX before filters; then network namespaces.
    pub attachments: Vec<Found>,
    /// Programs that could decide where packets and connections go, and are attached nowhere that can be seen.
    pub loose: Vec<LooseProgram>,
    /// Every array of programs on this machine, by id, used or not.
    pub prog_arrays: Vec<ProgArray>,
    /// What could not be looked at. Empty: everything was.
    pub blind: Vec<Blind>,
}

/// One attachment of one program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Where it is.
    pub place: Place,
    /// Which it is of those at that place that run, from 0 on.
    pub order: u32,
    /// What it is.
    pub program: ProgramDescription,
    /// How it is attached.
    pub manner: Manner,
    /// Whose it is.
    pub ownership: Ownership,
}

/// Where a program is attached.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// To a hook of a cgroup: it runs for sockets of processes in it and below it.
    Cgroup {
        /// The cgroup's id, which is the number of its folder.
        id: u64,
        /// Its folder, as a mount shows it.
        path: Option<PathBuf>,
        /// Whether it can be reached.
        state: CgroupState,
        /// `enum bpf_attach_type` of `linux/bpf.h`.
        attach_type: u32,
        /// What that is called.
        attach_name: &'static str,
    },
    /// To a network device.
    Device {
        /// Its index in its network namespace.
        index: u32,
        /// Its name. `None`: it is in another network namespace than that of the calling thread.
        name: Option<String>,
        /// At which layer.
        layer: Layer,
        /// Which packets it sees.
        direction: Direction,
    },
    /// To a network namespace.
    Namespace {
        /// The number of its file, as `readlink /proc/PID/ns/net` shows.
        inode: u32,
        /// `enum bpf_attach_type` of `linux/bpf.h`.
        attach_type: u32,
        /// What that is called.
        attach_name: &'static str,
    },
}

/// Whether a cgroup can be reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CgroupState {
    /// A mount of this mount namespace shows it.
    Visible,
    /// It is there, and no mount shows it: it lies above the root of this cgroup namespace or mount, or beside it.
    Hidden,
    /// Its folder was removed, and sockets that were made in it keep its programs running.
    Dying,
}

/// How a program is attached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Manner {
    /// Without a link (`BPF_PROG_ATTACH`): until it is detached, or its place is gone.
    Legacy {
        /// Of a cgroup: [`ALLOW_OVERRIDE`](lb_loader::ALLOW_OVERRIDE), [`ALLOW_MULTI`](lb_loader::ALLOW_MULTI), or 0,
        /// which lets no other program in, there or below.
        flags: u32,
    },
    /// By a link: until that is detached, or nothing holds it any more.
    Link {
        /// The link.
        id: u32,
        /// Where it is pinned.
        pinned_at: Vec<PathBuf>,
        /// Processes that hold it.
        held_by: Vec<Holder>,
    },
    /// As a filter of traffic control.
    Filter {
        /// Filters run in the order of their priorities.
        priority: u16,
        /// Its number among those of its priority.
        handle: u32,
        /// Its chain; those that are not 0 run only when a filter says so.
        chain: u32,
    },
    /// To XDP without a link.
    XdpNetlink {
        /// Where it runs.
        mode: XdpMode,
    },
}

/// A program, as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramDescription {
    /// Its id; not given again while it is loaded.
    pub id: u32,
    /// At most 15 bytes, chosen by its loader, not unique: for people only.
    pub name: String,
    /// `enum bpf_prog_type` of `linux/bpf.h`.
    pub program_type: u32,
    /// What that is called.
    pub type_name: &'static str,
    /// Hash of its instructions: equal for two loads of the same program.
    pub tag: [u8; 8],
    /// Since the machine started.
    pub loaded_at: Duration,
    /// The user who loaded it.
    pub uid: u32,
    /// The maps that it uses.
    pub maps: Vec<MapDescription>,
    /// Where it is pinned itself.
    pub pinned_at: Vec<PathBuf>,
    /// Processes that hold it itself.
    pub held_by: Vec<Holder>,
}

/// A map, as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapDescription {
    /// Its id; not given again while it is there.
    pub id: u32,
    /// At most 15 bytes, not unique: for people only.
    pub name: String,
    /// `enum bpf_map_type` of `linux/bpf.h`.
    pub map_type: u32,
    /// What that is called.
    pub type_name: &'static str,
    /// In bytes.
    pub key_size: u32,
    /// In bytes; of a map for each processor, one of them.
    pub value_size: u32,
    /// Most entries.
    pub max_entries: u32,
    /// Where it is pinned.
    pub pinned_at: Vec<PathBuf>,
    /// Processes that hold it.
    pub held_by: Vec<Holder>,
}

/// A process that holds something by a descriptor.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Holder {
    /// Its id, in the process namespace of /proc.
    pub pid: u32,
    /// Its name, at most 15 bytes, of its own choice.
    pub command: String,
}

/// A program of a type that can decide where packets and connections go, which is attached nowhere that can be seen:
/// it is held for later, called by others, or attached out of sight (see [`Blind`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LooseProgram {
    /// What it is; `pinned_at` and `held_by` say who keeps it loaded, if that can be seen.
    pub program: ProgramDescription,
    /// Whose it is.
    pub ownership: Ownership,
    /// Arrays of programs that it is in: other programs jump to it.
    pub called_from: Vec<u32>,
    /// Of a program of ours: whether it would do anything if it ran. One whose META is not of its own version leaves
    /// everything alone.
    pub armed: bool,
}

/// An array of programs (`BPF_MAP_TYPE_PROG_ARRAY`). A program that uses it can go on as any program in it (a tail call):
/// those run without being attached anywhere. The kernel empties it when neither a pin nor a descriptor is left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgArray {
    /// What it is; `pinned_at` and `held_by` say who keeps it filled.
    pub map: MapDescription,
    /// Programs that use it, attached or not, by id.
    pub callers: Vec<u32>,
    /// Programs in it, each once, by id; of one that could not be read (see [`Blind`]), not all of them.
    pub programs: Vec<u32>,
}

impl LooseProgram {
    /// Whether nothing that can be seen keeps it loaded: so something does that can't, mostly a cgroup that was
    /// removed while sockets of it live on.
    pub fn is_unexplained(&self) -> bool {
        self.called_from.is_empty() && self.program.pinned_at.is_empty() && self.program.held_by.is_empty()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.command, self.pid)
    }
}

impl fmt::Display for Place {
    /// For messages: `connect4 of /sys/fs/cgroup/kubepods`, `tcx ingress of eth0 (2)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup {
                id,
                path,
                state,
                attach_name,
                ..
            } => {
                write!(f, "{attach_name} of ")?;
                match (path, state) {
                    (Some(path), _) => write!(f, "{}", path.display()),
                    (None, CgroupState::Dying) => write!(f, "removed cgroup {id}"),
                    (None, _) => write!(f, "cgroup {id}, which no mount shows"),
                }
            }
            Self::Device {
                index,
                name,
                layer,
                direction,
            } => {
                write!(f, "{} {direction} of ", layer.name())?;
                match name {
                    Some(name) => write!(f, "{name} ({index})"),
                    None => write!(f, "device {index} of another network namespace"),
                }
            }
            Self::Namespace {
                inode, attach_name, ..
            } => write!(f, "{attach_name} of network namespace {inode}"),
        }
    }
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Legacy { .. } => f.write_str("without a link"),
            Self::Link { id, .. } => write!(f, "by link {id}"),
            Self::Filter { priority, handle, .. } => {
                write!(f, "as a filter (priority {priority}, handle {handle:#x})")
            }
            Self::XdpNetlink { mode } => write!(f, "without a link ({})", mode.name()),
        }
    }
}
