//! The network namespaces with sockets that socket programs of a cgroup run for.

use std::{
    collections::HashSet,
    fs::{self, File},
    io,
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use glob::Pattern;

/// Most namespaces that are visited; a node has some hundred pods.
const NAMESPACES: usize = 4096;
/// The folder of container runtimes and `ip netns`.
const NAMED: &str = "/run/netns";

/// Calls `work` once for each network namespace of a process in a cgroup or below it, and for each that a container runtime has
/// named. After an error it goes on with the others.
///
/// Pods' processes are only visible in the host's PID namespace (`hostPID`), otherwise their names are. Programs run for no socket
/// of a process outside of their cgroup, and a machine may have many such namespaces: those of other nodes, where nodes are
/// containers.
///
/// # Errors
/// The first error of `work`.
pub(super) fn each_namespace<E>(
    cgroup: &Path,
    mut work: impl FnMut(std::os::fd::BorrowedFd<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut seen, mut result) = (HashSet::new(), Ok(()));
    for path in paths(cgroup) {
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
fn paths(cgroup: &Path) -> impl Iterator<Item = PathBuf> {
    // A process that this PID namespace does not have is 0.
    let processes = processes(cgroup).filter(|process| process != "0");
    [PathBuf::from("/proc/thread-self/ns/net")]
        .into_iter()
        .chain(processes.map(|process| PathBuf::from(format!("/proc/{process}/ns/net"))))
        .chain(list(NAMED))
}

/// The processes of a cgroup and of those below it.
fn processes(cgroup: &Path) -> impl Iterator<Item = String> + use<> {
    let pattern = format!("{}/**/cgroup.procs", Pattern::escape(&cgroup.to_string_lossy()));
    // A cgroup that has ended has none; that of threads lists them with the processes of the one above.
    let lists = glob::glob(&pattern).into_iter().flatten().flatten();
    let lists = lists.filter_map(|list| fs::read_to_string(list).ok());
    lists.flat_map(|list| list.lines().map(str::to_owned).collect::<Vec<_>>())
}

fn list(folder: &'static str) -> impl Iterator<Item = PathBuf> + use<> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_a_cgroup_are_those_below_it_too_and_of_no_other() {
        let folder = tempfile::tempdir().unwrap();
        for (cgroup, listed) in [
            ("node [1]", "0\n7\n"),
            ("node [1]/pods/a", "30\n8\n"),
            ("node 2", "9\n"),
        ] {
            let cgroup = folder.path().join(cgroup);
            fs::create_dir_all(&cgroup).unwrap();
            fs::write(cgroup.join("cgroup.procs"), listed).unwrap();
        }
        let mut found: Vec<_> = processes(&folder.path().join("node [1]")).collect();
        found.sort();
        assert_eq!(found, ["0", "30", "7", "8"]);
        assert_eq!(processes(&folder.path().join("gone")).count(), 0);
    }
}
