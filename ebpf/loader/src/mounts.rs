//! What is mounted, as mountinfo in /proc says, of the calling thread or of another.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

/// Where file systems of a type (`cgroup2`, `bpf`) are mounted in this thread's mount namespace, in the order of mounting.
pub fn mount_points(filesystem: &str) -> io::Result<Vec<PathBuf>> {
    points(Path::new("/proc/thread-self"), filesystem)
}

/// Where file systems of a type are mounted; `process`: its folder in /proc, whose mount namespace is meant.
pub(crate) fn points(process: &Path, filesystem: &str) -> io::Result<Vec<PathBuf>> {
    let text = fs::read_to_string(process.join("mountinfo"))?;
    Ok(text.lines().filter_map(|line| point(line, filesystem)).collect())
}

/// `36 35 98:0 / /mount/point options [tags] - type source options` (proc_pid_mountinfo(5)).
fn point(line: &str, filesystem: &str) -> Option<PathBuf> {
    let (left, right) = line.split_once(" - ")?;
    if right.split(' ').next()? != filesystem {
        return None;
    }
    Some(unescape(left.split(' ').nth(4)?))
}

/// Blanks and backslashes are written as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = (*first == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_point_is_the_fifth_field_and_unescaped() {
        let line = r"41 31 0:38 /.. /mnt/a\040b\134 rw,relatime shared:1 - cgroup2 cgroup2 rw";
        assert_eq!(point(line, "cgroup2"), Some(PathBuf::from(r"/mnt/a b\")));
        assert_eq!(point(line, "cgroup"), None);
        assert_eq!(point("41 31", "cgroup2"), None);
    }
}
