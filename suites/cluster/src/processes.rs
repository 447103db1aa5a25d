//! Processes by their age.

use std::{fs, path::Path};

/// The process that began first: a container's own. Its children, and processes that entered the container later, began
/// later; their ids may be smaller, as ids begin anew after the largest (`pid_max`, proc_sys_kernel(5)).
///
/// `proc` is a mounted proc file system; processes that have ended are left out. `None` if none is left.
#[must_use]
pub fn oldest(proc: &Path, processes: impl IntoIterator<Item = u32>) -> Option<u32> {
    let age = |process: u32| {
        let stat = fs::read_to_string(proc.join(process.to_string()).join("stat")).ok()?;
        Some((began(&stat)?, process))
    };
    let (_, process) = processes.into_iter().filter_map(age).min()?;
    Some(process)
}

/// Start time of a process, in ticks since the boot (proc_pid_stat(5)).
fn began(stat: &str) -> Option<u64> {
    // The name may contain spaces and parentheses. The third field comes first here, and the 22nd is the start time.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_began_first_is_found_whatever_its_id() {
        let folder = tempfile::tempdir().unwrap();
        for (process, began) in [(30, 100), (7, 200), (8, 150)] {
            let folder = folder.path().join(process.to_string());
            fs::create_dir(&folder).unwrap();
            let stat = format!("{process} (a b) c) S{} {began} 0\n", " 0".repeat(18));
            fs::write(folder.join("stat"), stat).unwrap();
        }
        assert_eq!(oldest(folder.path(), [7, 30, 8, 9]), Some(30));
        assert_eq!(oldest(folder.path(), [8, 7]), Some(8));
        assert_eq!(oldest(folder.path(), [9]), None);
    }
}
