//! Files of a run belong to who called sudo, not to root.

use std::{
    env, fs, io,
    os::unix::fs::lchown,
    path::{Path, PathBuf},
};

/// The folder of a run's reports and evidence.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// The first folder on the way to it that was made here.
    made: PathBuf,
}

impl Folder {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let absolute = std::path::absolute(path)?;
        let missing = absolute.ancestors().take_while(|folder| !folder.exists()).last();
        let made = missing.unwrap_or(&absolute).to_owned();
        fs::create_dir_all(&absolute)?;
        Ok(Self { path: absolute, made })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives everything in it to who called sudo, if anybody did: on drop, so that files of a run that ended early are
    /// its caller's too.
    fn hand_over(&self) {
        let Some((user, group)) = caller() else {
            return;
        };
        if let Err(error) = give(&self.made, user, group) {
            eprintln!(
                "warning: files below {} still belong to root: {error}",
                self.made.display()
            );
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.hand_over();
    }
}

fn caller() -> Option<(u32, u32)> {
    let number = |name: &str| env::var(name).ok()?.parse().ok();
    Some((number("SUDO_UID")?, number("SUDO_GID")?))
}

fn give(path: &Path, user: u32, group: u32) -> io::Result<()> {
    lchown(path, Some(user), Some(group))?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), user, group)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_knows_how_far_up_it_was_made() {
        let base = tempfile::tempdir().unwrap();
        let folder = Folder::create(&base.path().join("a/b/c")).unwrap();
        assert_eq!(folder.made, base.path().join("a"));
        let again = Folder::create(&base.path().join("a/b/c")).unwrap();
        assert_eq!(again.made, again.path());
    }
}
