//! Reads and follows the log of a container by lines.

use std::{
    collections::VecDeque,
    io::{self, SeekFrom},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::jiff::Timestamp;
use lab_apiserver::kubelet::{LogLine, PodOnNode};
use serde::Deserialize;
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt},
    time::sleep,
};

use super::table::Table;

/// Most bytes of one run that are shown, from its end.
const MOST: u64 = 16 << 20;
/// Bytes read at once of a followed log.
const CHUNK: u64 = 1 << 20;
/// Interval between reads of a followed log.
const LOOK: Duration = Duration::from_millis(100);

/// One run of a container in the log file that all runs of its pod share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The file.
    pub(super) stdout: PathBuf,
    /// Offset of the run before this one, if there was one.
    pub(super) previous: Option<u64>,
    /// Offset of this run.
    pub(super) begin: u64,
    /// Start time of this run.
    pub(super) since: Timestamp,
}

/// A position in a log.
pub(super) struct Tail {
    path: PathBuf,
    at: u64,
    /// Time of the last line; a line without a time has that of the line before.
    time: Timestamp,
}

/// The time field of a line of the probe's log.
#[derive(Deserialize)]
struct Timed {
    time_us: i64,
}

impl Tail {
    /// The position at the beginning of a run.
    pub(super) fn of(run: &Run) -> Self {
        Self {
            path: run.stdout.clone(),
            at: run.begin,
            time: run.since,
        }
    }

    /// Whole lines from here to an offset, or to the end of the file; at most the last [`MOST`] bytes of them.
    pub(super) async fn read(&mut self, to: Option<u64>) -> io::Result<VecDeque<LogLine>> {
        let mut file = File::open(&self.path).await?;
        let end = match to {
            Some(end) => end,
            None => file.metadata().await?.len(),
        };
        let cut = end.saturating_sub(MOST);
        if self.at < cut {
            // The first, incomplete line is skipped, but not a line that begins exactly here.
            self.at = cut - 1;
            drop(self.take(&mut file, end.min(cut + CHUNK), 1).await?);
        }
        self.take(&mut file, end, usize::MAX).await
    }

    /// Whole lines up to an offset, at most `most` bytes.
    async fn take(&mut self, file: &mut File, end: u64, most: usize) -> io::Result<VecDeque<LogLine>> {
        file.seek(SeekFrom::Start(self.at)).await?;
        let mut bytes = Vec::new();
        let length = end.saturating_sub(self.at);
        file.take(length).read_to_end(&mut bytes).await?;
        let mut lines = VecDeque::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n').take(most) {
            if !line.ends_with(b"\n") {
                break;
            }
            self.at += line.len() as u64;
            let timed = serde_json::from_slice(line);
            if let Some(at) = timed
                .ok()
                .and_then(|Timed { time_us }| Timestamp::from_microsecond(time_us).ok())
            {
                self.time = at;
            }
            lines.push_back(LogLine {
                at: self.time,
                text: line.to_vec().into(),
            });
        }
        Ok(lines)
    }

    /// Lines as they are written, until the pod's container ends.
    pub(super) fn follow(self, table: Arc<Table>, pod: PodOnNode) -> impl Stream<Item = LogLine> + Send {
        stream::unfold((self, table, pod), |(mut tail, table, pod)| async move {
            let lines = tail.written_next(&table, &pod).await?;
            Some((stream::iter(lines), (tail, table, pod)))
        })
        .flatten()
    }

    /// The next lines; `None` when the container has ended.
    async fn written_next(&mut self, table: &Table, pod: &PodOnNode) -> Option<VecDeque<LogLine>> {
        loop {
            // Read before the file, so that the last lines of a run are not missed.
            let runs = table.snapshot(pod).is_some_and(|snapshot| snapshot.running);
            let mut file = File::open(&self.path).await.ok()?;
            let lines = self.take(&mut file, self.at + CHUNK, usize::MAX).await.ok()?;
            if !lines.is_empty() {
                return Some(lines);
            }
            if !runs {
                return None;
            }
            sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    fn texts(lines: &VecDeque<LogLine>) -> Vec<(i64, String)> {
        let text = |line: &LogLine| String::from_utf8_lossy(&line.text).into_owned();
        lines
            .iter()
            .map(|line| (line.at.as_second(), text(line)))
            .collect()
    }

    #[tokio::test]
    async fn runs_are_told_apart_and_lines_have_the_times_that_they_say() {
        let folder = tempfile::tempdir().expect("a folder");
        let stdout = folder.path().join("log");
        let first = "{\"time_us\":7000000}\n";
        fs::write(&stdout, format!("{first}second\nhalf")).expect("written");
        let since = Timestamp::from_second(3).expect("a time");
        let mut run = Run {
            stdout: stdout.clone(),
            previous: Some(0),
            begin: first.len() as u64,
            since,
        };
        let mut tail = Tail::of(&run);
        let lines = tail.read(None).await.expect("read");
        assert_eq!(texts(&lines), [(3, "second\n".to_owned())]);
        let mut file = fs::OpenOptions::new().append(true).open(&stdout).expect("open");
        file.write_all(b" and half\n").expect("written");
        let lines = tail.read(None).await.expect("read");
        assert_eq!(texts(&lines), [(3, "half and half\n".to_owned())]);

        let end = run.begin;
        run.begin = 0;
        let lines = Tail::of(&run).read(Some(end)).await.expect("read");
        assert_eq!(texts(&lines), [(7, first.to_owned())]);
    }

    #[tokio::test]
    async fn a_long_log_is_shown_from_its_last_whole_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let stdout = folder.path().join("log");
        let long = "x".repeat(1023) + "\n";
        let count = usize::try_from(MOST).expect("small") / long.len() + 10;
        fs::write(&stdout, format!("start\n{}", long.repeat(count))).expect("written");
        let run = Run {
            stdout,
            previous: None,
            begin: 0,
            since: Timestamp::UNIX_EPOCH,
        };
        let lines = Tail::of(&run).read(None).await.expect("read");
        assert!(lines.iter().all(|line| line.text == long.as_bytes()));
        assert_eq!(lines.len() * long.len(), usize::try_from(MOST).expect("small"));
    }
}
