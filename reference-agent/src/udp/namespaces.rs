//! The network namespaces with sockets of this node.

use std::{
    collections::HashSet,
    fs::{self, File},
    io,
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
};

/// Most namespaces that are visited; a node has some hundred pods.
pub const NAMESPACES: usize = 4096;
/// The folder of container runtimes and `ip netns`.
const NAMED: &str = "/run/netns";

/// Calls `work` once for each network namespace of a process in /proc, and for each that a container runtime has named.
/// After an error it goes on with the others.
///
/// Pods' processes are only visible in the host's PID namespace (`hostPID`), otherwise their names are.
///
/// # Errors
/// The first error of `work`.
pub fn each_namespace<E>(
    mut work: impl FnMut(std::os::fd::BorrowedFd<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut seen, mut result) = (HashSet::new(), Ok(()));
    for path in paths() {
        // The process or pod may have ended.
        let Ok(namespace) = File::open(&path) else {
            continue;
        };
        let Ok(inode) = namespace.metadata().map(|found| found.ino()) else {
            continue;
        };
        if !is_network(&namespace) || !seen.insert(inode) {
            continue;
        }
        if seen.len() > NAMESPACES {
            tracing::warn!(
                most = NAMESPACES,
                "there are more network namespaces than are looked into"
            );
            break;
        }
        let done = work(namespace.as_fd());
        result = result.and(done);
    }
    result
}

/// The calling thread's own first.
fn paths() -> impl Iterator<Item = PathBuf> {
    let processes = list("/proc").filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    });
    [PathBuf::from("/proc/thread-self/ns/net")]
        .into_iter()
        .chain(processes.map(|process| process.join("ns/net")))
        .chain(list(NAMED))
}

fn list(folder: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = match fs::read_dir(Path::new(folder)) {
        Ok(entries) => Some(entries),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::debug!(folder, %error, "network namespaces there are not seen");
            None
        }
    };
    entries.into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The name of a former namespace is an ordinary, empty file.
fn is_network(namespace: &File) -> bool {
    nix::sys::statfs::fstatfs(namespace)
        .is_ok_and(|found| found.filesystem_type() == nix::sys::statfs::NSFS_MAGIC)
}
