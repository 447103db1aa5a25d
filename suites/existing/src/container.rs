//! The first process of a container, on its node: `plumbline node process`.

use std::{fs, io, path::Path};

use cluster::processes::oldest;
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Finds the oldest process of a container on its node, and sends it a signal if one is named; `None` if the
/// container has none.
///
/// `id` is the container's id, which runtimes use in the name of its cgroup.
///
/// # Errors
/// As text, for stderr: processes can't be listed, or can't be signalled.
pub fn container_process(id: &str, signal: Option<Signal>) -> Result<Option<u32>, String> {
    if id.is_empty() {
        return Err("expected a container's id, found none".to_owned());
    }
    let found = first(Path::new("/proc"), id).map_err(|error| format!("can't list processes: {error}"))?;
    if let (Some(process), Some(signal)) = (found, signal) {
        let pid = i32::try_from(process).map_err(|error| error.to_string())?;
        match kill(Pid::from_raw(pid), signal) {
            // The process has ended meanwhile.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(format!("can't send {signal} to process {process}: {errno}")),
        }
    }
    Ok(found)
}

fn first(proc: &Path, id: &str) -> io::Result<Option<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(proc)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end at any moment.
        let cgroups = fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        if cgroups.lines().any(|line| line.contains(id)) {
            found.push(process);
        }
    }
    Ok(oldest(proc, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_of_a_container_that_began_first_is_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let process = |pid: u32, cgroup: &str, began: u64| {
            let folder = folder.path().join(pid.to_string());
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("cgroup"), cgroup).unwrap();
            let stat = format!("{pid} (a b) c) S{} {began} 0\n", " 0".repeat(18));
            fs::write(folder.join("stat"), stat).unwrap();
        };
        let of = |id: &str| format!("5:memory:/system.slice\n0::/kubepods/pod1/cri-containerd-{id}.scope\n");
        process(30, &of("abc"), 100);
        process(7, &of("abc"), 200);
        process(8, &of("def"), 50);
        process(1, "0::/init.scope\n", 1);
        fs::create_dir(folder.path().join("sys")).unwrap();
        assert_eq!(first(folder.path(), "abc").unwrap(), Some(30));
        assert_eq!(first(folder.path(), "def").unwrap(), Some(8));
        assert_eq!(first(folder.path(), "fed").unwrap(), None);
        assert!(container_process("", None).is_err());
    }
}
