//! Files of a folder that have changed, and are complete.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Instant,
};

use super::{FILES, SETTLE};

/// Attributes of a file that change with its contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// To be read.
    pub(super) changed: Vec<PathBuf>,
    /// Deleted.
    pub(super) gone: Vec<PathBuf>,
    /// Whether no other file is changing.
    pub(super) settled: bool,
}

/// Scans a folder.
#[derive(Debug)]
pub(super) struct Scanner {
    folder: PathBuf,
    /// Files that were read, or are about to be.
    taken: BTreeMap<PathBuf, Stamp>,
    /// Files that are changing: the last stamp (`None`: deleted), and since when.
    changing: BTreeMap<PathBuf, (Option<Stamp>, Instant)>,
}

impl Scanner {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            taken: BTreeMap::new(),
            changing: BTreeMap::new(),
        }
    }

    /// Finds files that have changed since the last scan, and not for [`SETTLE`].
    pub(super) fn scan(&mut self, now: Instant) -> io::Result<Changes> {
        let seen: BTreeMap<PathBuf, Stamp> = list(&self.folder)?.into_iter().collect();
        let mut changes = Changes::default();
        let mut changing = BTreeMap::new();
        let paths = self
            .taken
            .keys()
            .chain(seen.keys().filter(|path| !self.taken.contains_key(*path)));
        for path in paths {
            let stamp = seen.get(path).copied();
            if stamp == self.taken.get(path).copied() {
                continue;
            }
            let since = match self.changing.get(path) {
                Some((before, since)) if *before == stamp => *since,
                _ => now,
            };
            if now.duration_since(since) < SETTLE {
                changing.insert(path.clone(), (stamp, since));
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
        changes.settled = changing.is_empty();
        self.changing = changing;
        Ok(changes)
    }

    /// Treats files as changed in the next scan.
    pub(super) fn forget<'a>(&mut self, files: impl Iterator<Item = &'a Path>) {
        for path in files {
            // No file has this stamp.
            self.taken.insert(path.to_owned(), Stamp::default());
        }
    }
}

/// The files that are read, by name.
pub(super) fn list(folder: &Path) -> io::Result<Vec<(PathBuf, Stamp)>> {
    let mut files = Vec::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let extension = path.extension().unwrap_or_default().as_encoded_bytes();
        if name.starts_with(b".") || !matches!(extension, b"yaml" | b"yml" | b"json") {
            continue;
        }
        // Skips a file deleted since, and a broken link.
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
