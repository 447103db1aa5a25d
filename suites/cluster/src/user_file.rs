//! Reads a whole file that a user names: with a size limit, and no devices.

use std::{
    fs::{self, File, FileType},
    io::{self, Read as _},
    os::unix::fs::FileTypeExt as _,
    path::Path,
};

/// Most bytes of a file written by people (targets, kubeconfigs): the YAML parser's own limit for all text of a
/// document.
pub const MOST_BYTES: u64 = 64 * MIB;

/// Bytes.
const MIB: u64 = 1024 * 1024;

/// Why a file was not read: what was expected, and what was found. The caller adds the file's name.
#[derive(Debug, thiserror::Error)]
pub enum UserFileError {
    /// The system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A device, a folder or a socket.
    #[error("expected a regular file or a pipe, found {found}")]
    NotAFile {
        /// Type of the file.
        found: &'static str,
    },
    /// The file is longer than the limit.
    #[error("expected at most {} MiB, found more", most / MIB)]
    TooLarge {
        /// Limit in bytes.
        most: u64,
    },
    /// The file is no UTF-8 text.
    #[error("expected text in UTF-8, found other bytes after the first {valid}")]
    NotText {
        /// Number of valid UTF-8 bytes.
        valid: usize,
    },
}

/// Reads a file of at most `most` bytes; a pipe, such as that of `<(…)`, until its writer closes it.
///
/// # Errors
/// [`UserFileError`]. No more than the limit is read of an endless file.
pub fn read(path: &Path, most: u64) -> Result<String, UserFileError> {
    // Checked before opening: opening a device can have effects.
    let kind = fs::metadata(path)?.file_type();
    if let Some(found) = other_kind(kind) {
        return Err(UserFileError::NotAFile { found });
    }
    let mut bytes = Vec::new();
    let length = File::open(path)?
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if u64::try_from(length).is_ok_and(|length| length > most) {
        return Err(UserFileError::TooLarge { most });
    }
    String::from_utf8(bytes).map_err(|error| UserFileError::NotText {
        valid: error.utf8_error().valid_up_to(),
    })
}

/// Type of a file that is neither regular nor a pipe.
fn other_kind(kind: FileType) -> Option<&'static str> {
    if kind.is_file() || kind.is_fifo() {
        return None;
    }
    Some(if kind.is_dir() {
        "a folder"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_block_device() {
        "a block device"
    } else {
        "a socket"
    })
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::net::UnixListener, thread};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    fn error(path: &Path, most: u64) -> String {
        read(path, most).expect_err("refused").to_string()
    }

    #[test]
    fn what_is_neither_a_file_nor_a_pipe_is_named_and_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        for (path, found) in [
            (Path::new("/dev/zero"), "a character device"),
            (Path::new("/dev/null"), "a character device"),
            (folder.path(), "a folder"),
            (&socket, "a socket"),
        ] {
            let expected = format!("expected a regular file or a pipe, found {found}");
            assert_eq!(error(path, MOST_BYTES), expected);
        }
        assert!(error(&folder.path().join("none"), 1).contains("No such file"));
    }

    #[test]
    fn a_file_may_be_as_large_as_the_limit_and_no_larger() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let file = File::create(&path).expect("a file");
        file.set_len(MIB).expect("its length");
        assert_eq!(read(&path, MIB).expect("read").len(), 1024 * 1024);
        file.set_len(MIB + 1).expect("its length");
        assert_eq!(error(&path, MIB), "expected at most 1 MiB, found more");
    }

    #[test]
    fn a_pipe_is_read_to_its_end_and_one_without_end_up_to_the_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe");
        mkfifo(&path, Mode::S_IRWXU).expect("a pipe");
        let write = |times: usize| {
            let path = path.clone();
            thread::spawn(move || {
                let mut pipe = fs::OpenOptions::new().write(true).open(path).expect("a reader");
                // The reader stops at its limit.
                (0..times).try_for_each(|_| pipe.write_all(&[b'x'; 4096])).is_ok()
            })
        };
        let writer = write(2);
        assert_eq!(read(&path, MIB).expect("read").len(), 8192);
        assert!(writer.join().expect("ended"));
        let writer = write(usize::MAX);
        assert!(error(&path, MIB).contains("at most 1 MiB"));
        assert!(!writer.join().expect("ended"), "the reader went away");
    }

    #[test]
    fn other_bytes_than_text_are_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), b"ab\xff").expect("written");
        assert!(
            error(file.path(), MIB)
                .starts_with("expected text in UTF-8, found other bytes after the first 2")
        );
    }
}
