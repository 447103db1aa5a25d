//! What a seed has shown, as lines in the log of its pod.
//!
//! ```text
//!  ~plumbline-seed 7 begin
//!  ~plumbline-seed 7 BASE64            of a tar archive: report.yaml, evidence/chaos-7/…, each file compressed
//!  ~plumbline-seed 7 end SHA256
//! ```
//!
//! A kubelet keeps 10 MiB of a log, and returns the newest file alone: what does not fit into [`MOST`] is left out, and named. The
//! schedule and the history that was judged come first. Other lines may stand anywhere in between.

use std::{
    fs,
    io::{self, Read as _, Write},
    path::{Component, Path, PathBuf},
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use harness::execute::REPORT;
use scenarios::chaos::{HISTORY, SCHEDULE};
use sha2::{Digest as _, Sha256};

use crate::report::files::{HTML, JUNIT, YAML};

/// Begins each line.
const MARK: &str = "~plumbline-seed";
/// Bytes of an archive at most: as text, and with what container runtimes add to each line, 8.2 MiB.
const MOST: usize = 6 << 20;
/// Bytes of it in a line: runtimes split lines of 16 KiB.
const LINE: usize = 3072;
/// Bytes of all its files at most, where they are unpacked: the history of a seed has 2 MB.
const MOST_UNPACKED: u64 = 512 << 20;
/// What the archive adds to each file, at most.
const OF_A_FILE: usize = 1536;
/// Name of the list of files that are left out.
const LEFT_OUT: &str = "left-out";
/// Files that come first, in this order.
const FIRST: [&str; 4] = [YAML, REPORT, SCHEDULE, HISTORY];
/// Files that are made again from the others.
const MADE_AGAIN: [&str; 2] = [HTML, JUNIT];

/// What a log has held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unpacked {
    /// The report.
    pub(super) report: String,
    /// Files that were left out, each with its size.
    pub(super) left_out: Vec<String>,
}

/// Writes the folder of a run as lines.
///
/// # Errors
/// A file can't be read; stdout can't be written.
pub(super) fn write(folder: &Path, seed: u64, to: &mut impl Write) -> anyhow::Result<()> {
    let archive = pack(folder, MOST).with_context(|| format!("failed to pack {}", folder.display()))?;
    writeln!(to, "{MARK} {seed} begin")?;
    for part in archive.chunks(LINE) {
        writeln!(to, "{MARK} {seed} {}", STANDARD.encode(part))?;
    }
    writeln!(to, "{MARK} {seed} end {:x}", Sha256::digest(&archive))?;
    Ok(to.flush()?)
}

fn pack(folder: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut files = Vec::new();
    list(folder, Path::new(""), &mut files)?;
    files.retain(|(path, _)| !MADE_AGAIN.iter().any(|made| path == Path::new(made)));
    files.sort_by_key(|(path, size)| (rank(path), *size));
    let mut builder = tar::Builder::new(Vec::new());
    let mut left_out = Vec::new();
    for (path, size) in files {
        let compressed = compressed(&folder.join(&path), most)?;
        let room = most.saturating_sub(builder.get_ref().len() + OF_A_FILE);
        match compressed {
            Some(bytes) if bytes.len() <= room => append(&mut builder, &path, &bytes)?,
            _ => left_out.push(format!("{} ({:.1} MB)", path.display(), size as f64 / 1e6)),
        }
    }
    let list = compress(left_out.join("\n").as_bytes())?;
    append(&mut builder, Path::new(LEFT_OUT), &list)?;
    builder.into_inner()
}

fn rank(path: &Path) -> usize {
    let place = FIRST.iter().position(|first| path.ends_with(first));
    place.unwrap_or(FIRST.len())
}

fn append(builder: &mut tar::Builder<Vec<u8>>, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, path, bytes)
}

/// All files below a folder, with their sizes.
fn list(root: &Path, below: &Path, files: &mut Vec<(PathBuf, u64)>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let (path, kind) = (below.join(entry.file_name()), entry.file_type()?);
        if kind.is_dir() {
            list(root, &path, files)?;
        } else if kind.is_file() {
            files.push((path, entry.metadata()?.len()));
        }
    }
    Ok(())
}

/// A file, compressed; `None` as soon as it takes more than this.
fn compressed(path: &Path, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut file = fs::File::open(path)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return encoder.finish().map(Some);
        }
        encoder.write_all(&buffer[..read])?;
        if encoder.get_ref().len() > most {
            return Ok(None);
        }
    }
}

fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Reads what a log holds, and writes its evidence to a folder.
///
/// # Errors
/// It is not there, not whole, or holds something else. Nothing is written then, unless writing itself failed.
pub(super) fn unpack(log: &str, seed: u64, to: &Path) -> Result<Unpacked, String> {
    let archive = decoded(log, seed)?;
    let odd = |error: io::Error| format!("what its pod has written is no archive: {error}");
    let mut archive = tar::Archive::new(archive.as_slice());
    let (mut room, mut files) = (MOST_UNPACKED, Vec::new());
    let mut found = Unpacked {
        report: String::new(),
        left_out: Vec::new(),
    };
    for entry in archive.entries().map_err(odd)? {
        let entry = entry.map_err(odd)?;
        let path = entry.path().map_err(odd)?.into_owned();
        let mut bytes = Vec::new();
        let read = GzDecoder::new(entry).take(room + 1).read_to_end(&mut bytes);
        let length = u64::try_from(read.map_err(odd)?).unwrap_or(u64::MAX);
        room = room
            .checked_sub(length)
            .ok_or_else(|| format!("its evidence has more than {} MiB unpacked", MOST_UNPACKED >> 20))?;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|error| error.to_string());
        match path.to_str() {
            Some(YAML) => found.report = text(bytes)?,
            Some(LEFT_OUT) => found.left_out = text(bytes)?.lines().map(str::to_owned).collect(),
            _ if is_evidence(&path) => files.push((path, bytes)),
            // Of the machine that it ran on.
            _ => {}
        }
    }
    for (path, bytes) in files {
        let path = to.join(path);
        let written = match path.parent() {
            Some(parent) => fs::create_dir_all(parent).and_then(|()| fs::write(&path, bytes)),
            None => fs::write(&path, bytes),
        };
        written.map_err(|error| format!("failed to write {}: {error}", path.display()))?;
    }
    Ok(found)
}

/// Whether a path is below the folder of evidence, and has nothing that leads out.
fn is_evidence(path: &Path) -> bool {
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    is_plain && path.starts_with("evidence") && path.components().count() > 2
}

/// The archive in a log.
fn decoded(log: &str, seed: u64) -> Result<Vec<u8>, String> {
    let mark = format!("{MARK} {seed} ");
    let (mut archive, mut has_begun) = (Vec::new(), false);
    for line in log.lines() {
        let Some(part) = line.strip_prefix(&mark) else {
            continue;
        };
        if part == "begin" {
            (archive, has_begun) = (Vec::new(), true);
        } else if let Some(digest) = part.strip_prefix("end ") {
            if has_begun && format!("{:x}", Sha256::digest(&archive)) == digest.trim_end() {
                return Ok(archive);
            }
            return Err("what its pod has written is not whole in its log; expected a node whose kubelet keeps 10 MiB of a log \
                        (containerLogMaxSize)"
                .to_owned());
        } else {
            let decoded = STANDARD.decode(part.trim_end());
            archive.extend(
                decoded.map_err(|error| format!("a line of what its pod has written is damaged: {error}"))?,
            );
        }
    }
    Err(if has_begun {
        "its log ends within what its pod has written".to_owned()
    } else {
        "its pod has written no result".to_owned()
    })
}

/// The end of what a pod has said, in a line; empty if it has said nothing.
pub(super) fn said_last(log: &str) -> String {
    /// Lines that are shown.
    const LINES: usize = 3;
    let lines = log.lines().map(str::trim);
    let lines: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !line.starts_with(MARK))
        .collect();
    lines[lines.len().saturating_sub(LINES)..].join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folder of a run of seed 7.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let evidence = folder.path().join("evidence/chaos-7");
        fs::create_dir_all(&evidence).unwrap();
        for (name, text) in [
            ("report.yaml", "format: x\n"),
            ("report.html", "<p>"),
            ("junit.xml", "<x/>"),
            ("resources.yaml", "a: 1\n"),
            ("evidence/chaos-7/schedule.json", "{}"),
            ("evidence/chaos-7/stderr.log", ""),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        // It can't be compressed.
        let noise: Vec<u8> = (0..200_000).map(|_| rand::random()).collect();
        fs::write(evidence.join(HISTORY), noise).unwrap();
        folder
    }

    fn log(folder: &Path) -> String {
        let mut log = Vec::from(*b"PASS chaos-7\n");
        write(folder, 7, &mut log).unwrap();
        String::from_utf8(log).unwrap()
    }

    #[test]
    fn what_a_pod_writes_is_what_is_collected() {
        let (from, to) = (folder(), tempfile::tempdir().unwrap());
        let log = log(from.path());
        assert!(
            log.lines().all(|line| line.len() < 5000),
            "runtimes split long lines"
        );
        // Others may write at the same time, such as the runtime or a library.
        let mixed: String = log.lines().map(|line| format!("{line}\nwarning: x\n")).collect();
        let found = unpack(&mixed, 7, to.path()).unwrap();
        assert_eq!(found.report, "format: x\n");
        assert!(found.left_out.is_empty());
        let read = |root: &Path, name: &str| fs::read(root.join("evidence/chaos-7").join(name)).unwrap();
        for name in [HISTORY, SCHEDULE, "stderr.log"] {
            assert_eq!(read(to.path(), name), read(from.path(), name), "{name}");
        }
        let all: Vec<_> = fs::read_dir(to.path())
            .unwrap()
            .map(|one| one.unwrap().file_name())
            .collect();
        assert_eq!(all, ["evidence"], "reports are made from all seeds");
    }

    #[test]
    fn what_is_not_whole_is_no_result() {
        let (from, to) = (folder(), tempfile::tempdir().unwrap());
        let log = log(from.path());
        let lines: Vec<&str> = log.lines().collect();
        let without = |at: usize| [&lines[..at], &lines[at + 1..]].concat().join("\n");
        let last = lines.len() - 1;
        let damaged = log.replacen(&lines[3][30..34], "!!!!", 1);
        for (log, part) in [
            ("", "no result"),
            ("plumbline: this host can't\n", "no result"),
            (&*without(last), "ends within"),
            (&*without(5), "not whole"),
            (&*without(1), "not whole"),
            // A rotated log begins anywhere.
            (&*lines[10..].join("\n"), "not whole"),
            (&*damaged, "damaged"),
            (&*log.replace("seed 7", "seed 8"), "no result"),
        ] {
            let why = unpack(log, 7, to.path()).unwrap_err();
            assert!(why.contains(part), "{part}: {why}");
        }
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0, "nothing is written");
        assert!(unpack(&log, 7, to.path()).is_ok());
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_named_and_what_was_judged_comes_first() {
        let from = folder();
        let other = from.path().join("evidence/chaos-7/attempts.jsonl.gz");
        let noise: Vec<u8> = (0..100_000).map(|_| rand::random()).collect();
        fs::write(other, noise).unwrap();
        let archive = pack(from.path(), 220_000).unwrap();
        assert!(archive.len() < 230_000, "{}", archive.len());
        let log = [
            format!("{MARK} 7 begin"),
            format!("{MARK} 7 {}", STANDARD.encode(&archive)),
            format!("{MARK} 7 end {:x}", Sha256::digest(&archive)),
        ];
        let to = tempfile::tempdir().unwrap();
        let found = unpack(&log.join("\n"), 7, to.path()).unwrap();
        assert_eq!(found.left_out, ["evidence/chaos-7/attempts.jsonl.gz (0.1 MB)"]);
        assert!(to.path().join("evidence/chaos-7").join(HISTORY).is_file());
    }

    #[test]
    fn nothing_is_written_outside_of_the_evidence() {
        for (path, is) in [
            ("evidence/chaos-7/schedule.json", true),
            ("evidence/chaos-7.1/a/b", true),
            ("evidence/x", false),
            ("report.html", false),
            ("/etc/passwd", false),
            ("evidence/../../x/y", false),
        ] {
            assert_eq!(is_evidence(Path::new(path)), is, "{path}");
        }
    }

    #[test]
    fn the_end_of_what_a_pod_has_said_explains_it() {
        assert_eq!(said_last("a\nb\n\nc\n~plumbline-seed 7 begin\nd\n"), "b / c / d");
        assert_eq!(said_last(""), "");
    }
}
