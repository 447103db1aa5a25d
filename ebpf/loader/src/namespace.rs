//! The network namespaces of this machine, and work done in one of them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::{fd::BorrowedFd, unix::fs::MetadataExt as _},
    path::PathBuf,
    thread,
};

use nix::sched::{CloneFlags, setns};

use crate::{Blind, LoaderError};

/// Most processes whose namespace is looked at.
const PROCESSES: usize = 32_768;
/// Most namespaces that are told of: one for each pod, and a node has some hundred.
const NAMESPACES: usize = 4096;
/// Where `ip netns` and container runtimes keep namespaces that no process is in.
const NAMED: [&str; 2] = ["/run/netns", "/var/run/netns"];

/// A network namespace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Namespace {
    /// Number of its file, as `readlink /proc/PID/ns/net` shows; given again once it is gone.
    pub inode: u64,
    path: PathBuf,
}

impl Namespace {
    /// Opens it. `None`: it is gone, or another one has its place.
    pub fn open(&self) -> Result<Option<File>, LoaderError> {
        match File::open(&self.path) {
            Err(error) if is_gone(&error) => Ok(None),
            opened => {
                let file = opened.map_err(LoaderError::path("open", &self.path))?;
                let inode = file
                    .metadata()
                    .map_err(LoaderError::path("look at", &self.path))?
                    .ino();
                Ok((inode == self.inode).then_some(file))
            }
        }
    }
}

/// Those that were found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Namespaces {
    /// Each once, by number.
    pub found: Vec<Namespace>,
    /// Where others may be.
    pub blind: Vec<Blind>,
}

/// Network namespaces that processes are in, or that `ip netns` or a container runtime keeps. Not those of single
/// threads, and of descriptors.
pub fn namespaces() -> Namespaces {
    let mut found: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut blind = Vec::new();
    let mut see = |path: PathBuf| match fs::metadata(&path) {
        Ok(metadata) => {
            found.entry(metadata.ino()).or_insert(path);
            Ok(())
        }
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(error),
    };
    let mut unreadable = 0_usize;
    match processes() {
        Ok(processes) => {
            if processes.len() > PROCESSES {
                blind.push(unseen(
                    format!("network namespaces of {} processes", processes.len() - PROCESSES),
                    format!("no more than {PROCESSES} are looked at"),
                ));
            }
            for pid in processes.into_iter().take(PROCESSES) {
                unreadable += usize::from(see(format!("/proc/{pid}/ns/net").into()).is_err());
            }
        }
        Err(error) => blind.push(unseen(
            "network namespaces of processes".to_owned(),
            error.to_string(),
        )),
    }
    for entry in NAMED.iter().flat_map(fs::read_dir).flatten().flatten() {
        unreadable += usize::from(see(entry.path()).is_err());
    }
    if unreadable > 0 {
        blind.push(Blind {
            what: format!("network namespaces of {unreadable} processes"),
            why: "the kernel does not show them".to_owned(),
            remedy: "grant CAP_SYS_PTRACE, and run in the host's process namespace (hostPID)".to_owned(),
        });
    }
    if found.len() > NAMESPACES {
        blind.push(unseen(
            format!("{} network namespaces", found.len() - NAMESPACES),
            format!("no more than {NAMESPACES} are looked at"),
        ));
    }
    let found = found.into_iter().take(NAMESPACES);
    Namespaces {
        found: found.map(|(inode, path)| Namespace { inode, path }).collect(),
        blind,
    }
}

fn unseen(what: String, why: String) -> Blind {
    Blind {
        what,
        why,
        remedy: "run in the host's process namespace (hostPID), with its /proc".to_owned(),
    }
}

/// Ids of the processes in /proc, rising.
pub fn processes() -> io::Result<Vec<u32>> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        if let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            processes.push(pid);
        }
    }
    processes.sort_unstable();
    Ok(processes)
}

/// Does something on a thread of its own in a network namespace, and waits for it.
pub(crate) fn within<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<T, LoaderError> + Send,
) -> Result<T, LoaderError> {
    let inside = || {
        setns(namespace, CloneFlags::CLONE_NEWNET)
            .map_err(|error| LoaderError::kernel("enter a network namespace")(error.into()))?;
        work()
    };
    thread::scope(|scope| match scope.spawn(inside).join() {
        Ok(result) => result,
        Err(panicked) => std::panic::resume_unwind(panicked),
    })
}

/// A process that ends has no namespace any more; a file of `ip netns` may be going.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}
