//! What has passed before: a small file in the folder that CI keeps between runs.
//!
//! One line for each time that a part passed: name, time, digest of its inputs, digest of the machine, commit. Newer
//! lines come last.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;

/// Limit of records of each part: enough for a few branches that are edited in turn.
const KEPT: usize = 20;

/// A part passed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) part: String,
    /// Since 1970.
    pub(crate) when: Duration,
    /// Digest of all files that the part reads.
    pub(crate) inputs: String,
    /// Digest of the kernel, and of the programs outside the repository that the part uses.
    pub(crate) machine: String,
    pub(crate) commit: String,
    /// Whether the work tree had uncommitted changes.
    pub(crate) changed: bool,
}

impl Record {
    fn parse(line: &str) -> Option<Self> {
        let [part, when, inputs, machine, commit, state] = *line.split(' ').collect::<Vec<_>>() else {
            return None;
        };
        Some(Self {
            part: part.to_owned(),
            when: Duration::from_secs(when.parse().ok()?),
            inputs: inputs.to_owned(),
            machine: machine.to_owned(),
            commit: commit.to_owned(),
            changed: state == "changed",
        })
    }

    fn line(&self) -> String {
        let Self {
            part,
            when,
            inputs,
            machine,
            commit,
            changed,
        } = self;
        let state = if *changed { "changed" } else { "clean" };
        format!("{part} {} {inputs} {machine} {commit} {state}\n", when.as_secs())
    }

    /// `2 h ago at 0123456`.
    pub(crate) fn shown(&self) -> String {
        let Self { commit, changed, .. } = self;
        let with = if *changed { " with changes" } else { "" };
        format!(
            "{} at {}{with}",
            ago(now().saturating_sub(self.when)),
            short(commit)
        )
    }
}

/// The abbreviated name of a commit.
pub(crate) fn short(commit: &str) -> &str {
    commit.get(..9).unwrap_or(commit)
}

/// Since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn ago(time: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match time.as_secs() {
        seconds if seconds < 2 * MINUTE => format!("{seconds} s ago"),
        seconds if seconds < 2 * HOUR => format!("{} min ago", seconds / MINUTE),
        seconds if seconds < 2 * DAY => format!("{} h ago", seconds / HOUR),
        seconds => format!("{} days ago", seconds / DAY),
    }
}

/// The file of records.
pub(crate) struct Records {
    file: PathBuf,
    /// Only one lane writes at a time.
    writing: Mutex<()>,
}

impl Records {
    /// The records in the folder that CI keeps between runs.
    pub(crate) fn of(cache: &Path) -> Self {
        let file = cache.join("passed.txt");
        let writing = Mutex::default();
        Self { file, writing }
    }

    /// All records, oldest first. Invalid lines, as of a later version, are ignored.
    ///
    /// # Errors
    /// The file exists and can't be read.
    pub(crate) fn read(&self) -> anyhow::Result<Vec<Record>> {
        if !self.file.exists() {
            return Ok(Vec::new());
        }
        let text = fs::read_to_string(&self.file)
            .with_context(|| format!("failed to read {}", self.file.display()))?;
        Ok(text.lines().filter_map(Record::parse).collect())
    }

    /// Adds a record.
    ///
    /// # Errors
    /// The file can't be read or written.
    pub(crate) fn add(&self, record: Record) -> anyhow::Result<()> {
        let _turn = self.writing.lock();
        let mut all = self.read()?;
        let part = record.part.clone();
        // A record with the same contents is replaced.
        all.retain(|known| {
            known.part != part || known.inputs != record.inputs || known.machine != record.machine
        });
        all.push(record);
        let mut surplus = all
            .iter()
            .filter(|known| known.part == part)
            .count()
            .saturating_sub(KEPT);
        all.retain(|known| {
            let goes = surplus > 0 && known.part == part;
            surplus -= usize::from(goes);
            !goes
        });
        self.write(&all)
    }

    /// Removes the records of inputs that have failed now.
    ///
    /// # Errors
    /// The file can't be read or written.
    pub(crate) fn forget(&self, part: &str, inputs: &str) -> anyhow::Result<()> {
        let _turn = self.writing.lock();
        let mut all = self.read()?;
        let before = all.len();
        all.retain(|known| known.part != part || known.inputs != inputs);
        if all.len() == before {
            Ok(())
        } else {
            self.write(&all)
        }
    }

    /// Keeps the report of inputs that passed; earlier ones are removed.
    ///
    /// # Errors
    /// The report can't be read or written.
    pub(crate) fn keep(&self, report: &Path, inputs: &str, machine: &str) -> anyhow::Result<()> {
        let kept = self.kept(inputs, machine);
        let folder = kept.parent().context("a report is in a folder")?;
        let new = folder.with_extension(format!("{}", std::process::id()));
        let copy = || {
            fs::create_dir_all(&new)?;
            fs::copy(report, new.join(kept.file_name().unwrap_or_default()))?;
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
            fs::rename(&new, folder)
        };
        copy().with_context(|| format!("failed to keep {} as {}", report.display(), kept.display()))
    }

    /// Path of the report of these inputs, if it is the last one.
    pub(crate) fn kept(&self, inputs: &str, machine: &str) -> PathBuf {
        let folder = self.file.with_file_name("reports");
        folder.join(format!("{inputs}-{machine}.yaml"))
    }

    /// Writes atomically.
    fn write(&self, all: &[Record]) -> anyhow::Result<()> {
        let text: String = all.iter().map(Record::line).collect();
        let new = self.file.with_extension(format!("{}", std::process::id()));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &self.file))
            .with_context(|| format!("failed to write {}", self.file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(part: &str, inputs: usize) -> Record {
        Record {
            part: part.to_owned(),
            when: Duration::from_secs(1_700_000_000),
            inputs: inputs.to_string(),
            machine: "m".to_owned(),
            commit: "c".to_owned(),
            changed: inputs.is_multiple_of(2),
        }
    }

    #[test]
    fn what_is_written_is_read_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::of(folder.path());
        assert_eq!(records.read().unwrap(), []);
        records.add(record("other", 0)).unwrap();
        for inputs in 0..KEPT + 3 {
            records.add(record("part", inputs)).unwrap();
        }
        let mut expected = vec![record("other", 0)];
        expected.extend((3..KEPT + 3).map(|inputs| record("part", inputs)));
        assert_eq!(records.read().unwrap(), expected);
        // The same record again replaces the old one, as the newest.
        records.add(record("part", 5)).unwrap();
        let all = records.read().unwrap();
        assert_eq!((all.len(), all.last()), (KEPT + 1, Some(&record("part", 5))));
        records.forget("part", "5").unwrap();
        records.forget("part", "none").unwrap();
        assert_eq!(records.read().unwrap().len(), KEPT);
        std::thread::scope(|scope| {
            for inputs in 0..8 {
                let records = &records;
                scope.spawn(move || records.add(record("beside", inputs)).unwrap());
            }
        });
        assert_eq!(records.read().unwrap().len(), KEPT + 8);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_line_of_another_version_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("passed.txt"), "part 1 x\n\nnonsense\n").unwrap();
        assert_eq!(Records::of(folder.path()).read().unwrap(), []);
    }
}
