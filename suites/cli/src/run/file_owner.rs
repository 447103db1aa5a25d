//! Gives the files of a run to the user who called sudo, instead of root.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use nix::{
    fcntl::{AtFlags, OFlag, openat},
    sys::stat::Mode,
    unistd::{Gid, Uid, fchownat},
};

use super::process::EVIDENCE;
use crate::{
    report::files::{HTML, JUNIT, YAML},
    terminal,
};

/// The run's files in its folder.
const WRITTEN: [&str; 4] = [EVIDENCE, YAML, HTML, JUNIT];

/// The folder of a run's reports and evidence.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The first folder on the path that this run made, or the folder of reports itself.
    first: PathBuf,
    /// The same folder, opened: still valid if the path is replaced.
    opened: File,
    /// Whether the run made this folder: then all of it is the run's.
    is_new: bool,
    /// Start of the run in seconds since 1970: entries that are older are not the run's.
    since: i64,
}

impl Folder {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let missing = path.ancestors().take_while(|folder| !folder.exists()).last();
        let is_new = missing.is_some();
        let first = missing.unwrap_or(&path).to_owned();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        fs::create_dir_all(&path)?;
        let mut flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        flags.set(OFlag::O_NOFOLLOW, is_new);
        let opened = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits())
            .open(&first)?;
        Ok(Self {
            path,
            first,
            opened,
            is_new,
            since: since.as_secs().try_into().unwrap_or(i64::MAX),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the owner of the run's files to the user who called sudo, if any: on drop, so that it also applies to
    /// runs that ended early.
    fn hand_over(&self) {
        let Some(to) = caller() else {
            return;
        };
        if let Err(error) = self.give(to) {
            terminal::message(&format!(
                "warning: files below {} still belong to root: {error}",
                terminal::path(&self.first)
            ));
        }
    }

    fn give(&self, to: (Uid, Gid)) -> io::Result<()> {
        let given = OwnerChange {
            since: self.since,
            to,
        };
        if self.is_new {
            return given.all(&self.opened);
        }
        for name in WRITTEN {
            given.below(&self.opened, name.as_ref())?;
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.hand_over();
    }
}

fn caller() -> Option<(Uid, Gid)> {
    let number = |name: &str| env::var(name).ok()?.parse().ok();
    Some((
        Uid::from_raw(number("SUDO_UID")?),
        Gid::from_raw(number("SUDO_GID")?),
    ))
}

/// What changes its owner, and the new owner. The caller of sudo may replace folders meanwhile, so every entry is
/// checked after it was opened, and no symbolic link is followed.
struct OwnerChange {
    since: i64,
    to: (Uid, Gid),
}

impl OwnerChange {
    /// An entry of a folder, and what is below; a missing one is no error.
    fn below(&self, folder: &File, name: &OsStr) -> io::Result<()> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match openat(folder, name, flags, Mode::empty()) {
            Ok(entry) => self.all(&entry.into()),
            Err(nix::Error::ENOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Root's entries that have changed since the run began; folders on the path to them may be older and have another
    /// owner.
    fn all(&self, entry: &File) -> io::Result<()> {
        let about = entry.metadata()?;
        if about.is_dir() {
            for below in fs::read_dir(format!("/proc/self/fd/{}", entry.as_raw_fd()))? {
                self.below(entry, &below?.file_name())?;
            }
        }
        // A file with several names may belong to another path, too.
        let has_one_name = about.is_dir() || about.nlink() == 1;
        if about.uid() == 0 && about.ctime() >= self.since && has_one_name {
            let (user, group) = self.to;
            fchownat(entry, "", Some(user), Some(group), AtFlags::AT_EMPTY_PATH)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn a_folder_knows_how_far_up_it_was_made() {
        let base = tempfile::tempdir().unwrap();
        let folder = Folder::create(&base.path().join("a/b/c")).unwrap();
        assert_eq!((&folder.first, folder.is_new), (&base.path().join("a"), true));
        let again = Folder::create(&base.path().join("a/b/c")).unwrap();
        assert_eq!((again.first.as_path(), again.is_new), (again.path(), false));
    }

    fn owner(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().uid()
    }

    /// Waits until new files get a later second than the existing ones.
    fn next_second(base: &Path) {
        let changed = |path: &Path| fs::symlink_metadata(path).unwrap().ctime();
        let (old, new) = (base.join("clock-old"), base.join("clock"));
        fs::write(&old, "").unwrap();
        fs::write(&new, "").unwrap();
        while changed(&new) <= changed(&old) {
            std::thread::sleep(std::time::Duration::from_millis(50));
            fs::write(&new, "1").unwrap();
        }
    }

    const TO: (Uid, Gid) = (Uid::from_raw(1234), Gid::from_raw(1234));

    #[test]
    fn of_a_folder_that_was_there_only_what_the_run_wrote_is_given() {
        if !testing::root_or_skip(&testing::current()) {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join("out").join(name);
        for name in ["evidence/old", "evidence/somebodys", "mine"] {
            fs::create_dir_all(at(name)).unwrap();
            fs::write(at(name).join("file"), "").unwrap();
        }
        lchown(at("evidence/somebodys/file"), Some(77), Some(77)).unwrap();
        next_second(base.path());
        let folder = Folder::create(&at("")).unwrap();
        fs::create_dir(at("evidence/new")).unwrap();
        fs::write(at("evidence/new/file"), "").unwrap();
        fs::write(at(YAML), "").unwrap();
        // A file of another process of root at the same time.
        fs::write(at("mine/new"), "").unwrap();
        folder.give(TO).unwrap();
        for (name, expected) in [
            ("evidence/new", 1234),
            ("evidence/new/file", 1234),
            (YAML, 1234),
            ("", 0),
            ("mine", 0),
            ("mine/new", 0),
            ("evidence/old", 0),
            ("evidence/old/file", 0),
            ("evidence/somebodys/file", 77),
        ] {
            assert_eq!(owner(&at(name)), expected, "{name:?}");
        }
    }

    #[test]
    fn what_links_lead_to_is_not_given() {
        if !testing::root_or_skip(&testing::current()) {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let folder = Folder::create(&base.path().join("out")).unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir(at("roots")).unwrap();
        fs::write(at("roots/file"), "").unwrap();
        symlink(at("roots"), at("out/symbolic")).unwrap();
        fs::hard_link(at("roots/file"), at("out/hard")).unwrap();
        fs::write(at("out/own"), "").unwrap();
        // The folder is replaced.
        fs::rename(at("out"), at("moved")).unwrap();
        symlink(at("roots"), at("out")).unwrap();
        folder.give(TO).unwrap();
        assert_eq!((owner(&at("moved")), owner(&at("moved/own"))), (1234, 1234));
        assert_eq!(owner(&at("moved/symbolic")), 1234);
        assert_eq!((owner(&at("roots")), owner(&at("roots/file"))), (0, 0));
    }
}
