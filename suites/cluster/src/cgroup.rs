//! Where the cgroup v2 hierarchy is mounted.

use std::path::PathBuf;

/// The first cgroup2 mount point in a mountinfo (proc(5)).
#[must_use]
pub fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let file_system = source.split(' ').next()?;
        let point = mount.split(' ').nth(4)?;
        (file_system == "cgroup2").then(|| PathBuf::from(unescape(point)))
    })
}

/// mountinfo escapes space, tab, newline and backslash as `\040` and so on.
fn unescape(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_owned(), |text, (code, character)| {
            text.replace(code, character)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_wherever_it_is_mounted() {
        let hybrid = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:7 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        let odd = "41 31 0:38 / /mnt/with\\040space rw - cgroup2 none rw\n";
        assert_eq!(mount_point(odd), Some(PathBuf::from("/mnt/with space")));
        assert_eq!(
            mount_point("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"),
            None
        );
    }
}
