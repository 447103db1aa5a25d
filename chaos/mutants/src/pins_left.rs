//! The clean-up looks for pins in another folder than the one that has them.

use std::{fs, io, path::Path};

/// Where the pins are, below a bpffs.
const PINS: &str = "plumbline";
/// Where the clean-up does not look, with a number: each clean-up misplaces what has been pinned since the last.
const MISPLACED: &str = "plumbline-misplaced";
/// More clean-ups than any case makes at one node.
const CLEANUPS: usize = 100;

/// Puts the pins where the clean-up finds none; none there is no error.
///
/// # Errors
/// What the kernel said; AlreadyExists after 100 of them.
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
