//! The clean-up searches for pins in the wrong folder.

use std::{fs, io, path::Path};

/// Folder of the pins, below a bpffs.
const PINS: &str = "plumbline";
/// Prefix of folders that the clean-up does not search: each clean-up moves the pins since the last one to another.
const MISPLACED: &str = "plumbline-misplaced";
/// More clean-ups than any case makes on a node.
const CLEANUPS: usize = 100;

/// Moves the pins to a folder that the clean-up does not search; no pins are no error.
///
/// # Errors
/// The kernel returns an error; AlreadyExists after 100 moves.
pub fn misplace(bpffs: &Path) -> io::Result<()> {
    let mut places = (0..CLEANUPS).map(|number| bpffs.join(format!("{MISPLACED}-{number}")));
    let place = places
        .find(|place| !place.exists())
        .ok_or(io::ErrorKind::AlreadyExists)?;
    match fs::rename(bpffs.join(PINS), place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_there_after_each_clean_up_but_not_where_they_are_looked_for() {
        let bpffs = tempfile::tempdir().unwrap();
        misplace(bpffs.path()).unwrap();
        for cleanup in 0..2 {
            fs::create_dir_all(bpffs.path().join("plumbline/v1")).unwrap();
            misplace(bpffs.path()).unwrap();
            assert!(!bpffs.path().join(PINS).exists());
            let place = bpffs.path().join(format!("{MISPLACED}-{cleanup}"));
            assert!(place.join("v1").exists());
        }
    }
}
