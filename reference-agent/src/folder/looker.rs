//! Which files of a folder have changed, and are whole.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Instant,
};

use super::{FILES, SETTLE};

/// What changes whenever a file does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What a look has found.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// To be read.
    pub(super) changed: Vec<PathBuf>,
    /// Not there any more.
    pub(super) gone: Vec<PathBuf>,
    /// Nothing is on the move.
    pub(super) settled: bool,
}

/// Remembers what has been seen.
#[derive(Debug)]
pub(super) struct Looker {
    folder: PathBuf,
    taken: BTreeMap<PathBuf, Stamp>,
    /// Since when files are as they are, but not taken yet; `None`: away.
    moving: BTreeMap<PathBuf, (Option<Stamp>, Instant)>,
}

impl Looker {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            taken: BTreeMap::new(),
            moving: BTreeMap::new(),
        }
    }

    /// What has changed since the last look, and has been as it is for [`SETTLE`].
    pub(super) fn look(&mut self, now: Instant) -> io::Result<Changes> {
        let seen: BTreeMap<PathBuf, Stamp> = list(&self.folder)?.into_iter().collect();
        let mut changes = Changes::default();
        let mut moving = BTreeMap::new();
        let paths = self
            .taken
            .keys()
            .chain(seen.keys().filter(|path| !self.taken.contains_key(*path)));
        for path in paths {
            let stamp = seen.get(path).copied();
            if stamp == self.taken.get(path).copied() {
                continue;
            }
            let since = match self.moving.get(path) {
                Some((before, since)) if *before == stamp => *since,
                _ => now,
            };
            if now.duration_since(since) < SETTLE {
                moving.insert(path.clone(), (stamp, since));
            } else if stamp.is_some() {
                changes.changed.push(path.clone());
            } else {
                changes.gone.push(path.clone());
            }
        }
        for path in &changes.changed {
            self.taken
                .extend(seen.get(path).map(|stamp| (path.clone(), *stamp)));
        }
        for path in &changes.gone {
            self.taken.remove(path);
        }
        changes.settled = moving.is_empty();
        self.moving = moving;
        Ok(changes)
    }

    /// Files that are to be looked at as if they were new.
    pub(super) fn forget<'a>(&mut self, files: impl Iterator<Item = &'a Path>) {
        for path in files {
            // Like no file's.
            self.taken.insert(path.to_owned(), Stamp::default());
        }
    }
}

/// The files that count, by name.
pub(super) fn list(folder: &Path) -> io::Result<Vec<(PathBuf, Stamp)>> {
    let mut files = Vec::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let extension = path.extension().unwrap_or_default().as_encoded_bytes();
        if name.starts_with(b".") || !matches!(extension, b"yaml" | b"yml" | b"json") {
            continue;
        }
        // One that has gone since, or a link to nowhere, is not there.
        if let Ok(metadata) = fs::metadata(&path)
            && metadata.is_file()
        {
            files.push((path, Stamp::of(&metadata)));
        }
    }
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    if files.len() > FILES {
        tracing::warn!(folder = %folder.display(), files = files.len(), "too many files; only the first {FILES} count");
        files.truncate(FILES);
    }
    Ok(files)
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
