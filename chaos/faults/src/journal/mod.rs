//! Notes of what helpers do on a node that outlasts their process: a file for each deed, until it is undone.
//!
//! A helper undoes its deeds when it ends. If it was killed, its notes stay, and `plumbline node undo` undoes what they
//! name, and nothing else.
//!
//! Here: notes and their folder. `undo.rs`: undoing the deeds of dead processes.

mod undo;

use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use cluster::NODE_FOLDER;
use serde::{Deserialize, Serialize};

pub use self::undo::{Arguments, Undone, undo};
pub(crate) use self::undo::{remove_folder, unmount};

/// Folder of a node that is emptied by a boot.
const RUN: &str = "/run";
/// How the name of a note begins.
const PREFIX: &str = "plumbline-note-";

/// Something that stays on the node when the process that did it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Deed {
    /// A folder was made, and something mounted there.
    Mounted {
        /// The folder.
        at: PathBuf,
    },
    /// An empty cgroup was made.
    MadeCgroup {
        /// Its folder.
        at: PathBuf,
    },
    /// A program was attached to a cgroup without a link.
    AtCgroup {
        /// The cgroup's id, which is the inode of its folder.
        cgroup: u64,
        /// The hook's name.
        hook: String,
        /// The program's id.
        program: u32,
    },
    /// A program was attached to a device without a link.
    AtDevice {
        /// The device's index.
        index: u32,
        /// The layer's name.
        layer: String,
        /// The direction's name.
        direction: String,
        /// The program's id.
        program: u32,
    },
}

/// The note of a deed of this process. It stays until [`undone`](Self::undone).
#[derive(Debug)]
pub(crate) struct Note(PathBuf);

/// Contents of a note's file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    by: Process,
    deed: Deed,
}

/// A process. Another one that gets the same number began later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Process {
    id: u32,
    /// In ticks since the boot.
    began: u64,
}

impl Note {
    /// Writes the note of a deed. Of a folder or cgroup before it is made, because its name is this process's own. Of a
    /// program after it is attached: if that is refused, another owner may have attached the same program.
    pub(crate) fn write(deed: Deed) -> Result<Self, String> {
        Self::write_in(&folder(), deed)
    }

    fn write_in(folder: &Path, deed: Deed) -> Result<Self, String> {
        static WRITTEN: AtomicU32 = AtomicU32::new(0);
        let by = Process::this()?;
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{PREFIX}{}-{number}", by.id));
        let failed = |why: &dyn fmt::Display| format!("can't write {}: {why}", path.display());
        let text = serde_json::to_string(&Noted { by, deed }).map_err(|error| failed(&error))?;
        fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        fs::write(&path, text).map_err(|error| failed(&error))?;
        Ok(Self(path))
    }

    /// Removes the note of a deed that is undone.
    pub(crate) fn undone(&self) {
        if let Err(error) = fs::remove_file(&self.0) {
            eprintln!("plumbline node: {} stays: {error}", self.0.display());
        }
    }
}

/// The folder for helpers' files on this node.
pub(crate) fn folder() -> PathBuf {
    env::var_os(NODE_FOLDER).map_or_else(|| PathBuf::from(RUN), PathBuf::from)
}

impl Process {
    fn this() -> Result<Self, String> {
        let id = process::id();
        let began =
            began(id).ok_or_else(|| format!("expected /proc/{id}/stat of this process, found none"))?;
        Ok(Self { id, began })
    }

    fn lives(self) -> bool {
        began(self.id) == Some(self.began)
    }
}

/// When a process began (proc(5)). `None` if it is dead, also if its parent has not waited for it.
fn began(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may contain spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The first one here is the third field of the file; the start is its 22nd.
    match (*fields.first()?, fields.get(19)?.parse()) {
        ("Z" | "X", _) => None,
        (_, began) => began.ok(),
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted { at } => write!(f, "the mount at {}", at.display()),
            Self::MadeCgroup { at } => write!(f, "the cgroup {}", at.display()),
            Self::AtCgroup { hook, program, .. } => {
                write!(f, "program {program} at {hook} of a cgroup, without a link")
            }
            Self::AtDevice {
                index,
                layer,
                direction,
                program,
            } => write!(f, "program {program} at device {index}, {layer} {direction}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_with_the_same_number_is_not_the_same() {
        let own = Process::this().unwrap();
        assert!(own.lives());
        let later = Process {
            began: own.began + 1,
            ..own
        };
        assert!(!later.lives());
        let mut child = process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = child.id();
        let child_itself = Process {
            id,
            began: began(id).unwrap(),
        };
        assert!(child_itself.lives());
        child.kill().unwrap();
        while child_itself.lives() {
            std::thread::yield_now();
        }
        assert!(Path::new(&format!("/proc/{id}")).exists(), "it is a zombie");
        child.wait().unwrap();
        assert!(!child_itself.lives());
    }

    #[test]
    fn a_note_stays_until_its_deed_is_undone() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("node1");
        let deed = Deed::MadeCgroup {
            at: "/sys/fs/cgroup/plumbline-elsewhere-7".into(),
        };
        let note = Note::write_in(&inner, deed.clone()).unwrap();
        let text = fs::read_to_string(&note.0).unwrap();
        assert_eq!(
            serde_json::from_str::<Noted>(&text).unwrap(),
            Noted {
                by: Process::this().unwrap(),
                deed
            }
        );
        note.undone();
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 0);
    }
}
