//! The initial file system of a machine: an archive as `cpio -H newc` makes it
//! (`Documentation/driver-api/early-userspace/buffer-format.rst`).

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::Path,
};

use anyhow::{Context as _, bail};

use super::{modules::Module, programs::Built};

/// Modes of executable and other files.
const PROGRAM: u32 = 0o100_755;
const DATA: u32 = 0o100_644;
const FOLDER: u32 = 0o040_755;

/// Writes the archive: the first process, programs and libraries, modules, the plan.
pub(super) fn write(
    file: &Path,
    built: &Built,
    modules: &[Module],
    plan: &guest::Plan,
) -> anyhow::Result<()> {
    let failed = || format!("failed to write {}", file.display());
    let mut archive = Archive::new(BufWriter::new(File::create(file).with_context(failed)?));
    for (path, from) in &built.files {
        let bytes = fs::read(from).with_context(|| format!("failed to read {}", from.display()))?;
        archive.add(path, PROGRAM, &bytes).with_context(failed)?;
    }
    for module in modules {
        archive
            .add(&module.path(), DATA, &module.bytes)
            .with_context(failed)?;
    }
    let plan = serde_json::to_vec(plan).context("failed to write the plan")?;
    archive.add(guest::PLAN, DATA, &plan).with_context(failed)?;
    archive.end().with_context(failed)
}

/// An archive that is being written.
struct Archive<W> {
    out: W,
    entries: u32,
    /// Folders that it already contains.
    folders: Vec<String>,
}

impl<W: Write> Archive<W> {
    const fn new(out: W) -> Self {
        Self {
            out,
            entries: 0,
            folders: Vec::new(),
        }
    }

    /// Adds a file after its parent folders.
    fn add(&mut self, path: &str, mode: u32, bytes: &[u8]) -> anyhow::Result<()> {
        let Some(path) = path.strip_prefix('/') else {
            bail!("{path} is not absolute");
        };
        for (at, _) in path.match_indices('/') {
            let folder = &path[..at];
            if !self.folders.iter().any(|known| known == folder) {
                self.folders.push(folder.to_owned());
                self.entry(folder, FOLDER, &[])?;
            }
        }
        Ok(self.entry(path, mode, bytes)?)
    }

    fn end(mut self) -> anyhow::Result<()> {
        self.entry("TRAILER!!!", 0, &[])?;
        Ok(self.out.flush()?)
    }

    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        let size = |length: usize| u32::try_from(length).map_err(io::Error::other);
        self.entries += 1;
        // Inode, mode, owner, group, links, time; size; device numbers of two kinds; size of the name, checksum.
        let header = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size(bytes.len())?,
            0,
            0,
            0,
            0,
            size(name.len() + 1)?,
            0,
        ];
        let mut entry = b"070701".to_vec();
        for number in header {
            write!(entry, "{number:08x}")?;
        }
        entry.extend(name.as_bytes());
        entry.push(0);
        entry.resize(entry.len().next_multiple_of(4), 0);
        self.out.write_all(&entry)?;
        self.out.write_all(bytes)?;
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        self.out.write_all(&[0; 3][..padding])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_begin_at_words_and_folders_come_before_what_is_in_them() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.add("/a/b/c", DATA, b"12345").unwrap();
        archive.add("/a/d", PROGRAM, b"").unwrap();
        archive.add("e", PROGRAM, b"").expect_err("not absolute");
        archive.end().unwrap();
        // Each header begins with the magic number; the name follows after 110 bytes.
        let begins: Vec<usize> = bytes
            .windows(6)
            .enumerate()
            .filter(|(_, window)| window == b"070701")
            .map(|(at, _)| at)
            .collect();
        let names: Vec<_> = begins
            .iter()
            .map(|at| bytes[at + 110..].split(|byte| *byte == 0).next().unwrap())
            .map(String::from_utf8_lossy)
            .collect();
        assert_eq!(names, ["a", "a/b", "a/b/c", "a/d", "TRAILER!!!"]);
        assert!(begins.iter().all(|at| at % 4 == 0) && bytes.len() % 4 == 0);
    }
}
