//! The one time-stamped history of a case: every API write, every version seen, every probe.
//!
//! It is two files, both compressed on their way to the disk: what the case did, with a summary of the attempts of each of
//! its phases (small, and on the disk at once), and the attempts themselves (large, and removed once a case has passed).
//! Each line begins with its time, so that `zcat history.jsonl.gz attempts.jsonl.gz | sort` is the history in one.
//!
//! `summary.rs`: attempts, counted.
mod summary;

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use cluster::AgentState;
use oracle::history::Attempt;
use serde::Serialize;
use serde_json::Value;

use crate::{compressed::Lines, names::Key};

use summary::Summary;

pub use summary::Attempts;

/// Name of the file of everything but attempts, in the case's folder.
pub const HISTORY: &str = "history.jsonl.gz";
/// Name of the file of attempts. A case that has passed has none, unless all was to be kept.
pub const ATTEMPTS: &str = "attempts.jsonl.gz";

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The case enters a part of itself.
    Phase {
        /// Which.
        name: String,
    },
    /// The API has acknowledged a write.
    Write {
        /// create, patch, replace, delete.
        verb: &'static str,
        /// Of what.
        #[serde(flatten)]
        key: Key,
        /// When it was sent, microseconds since the Unix epoch.
        sent_us: u64,
        /// The version that it made; empty for a deletion.
        resource_version: String,
        /// What was sent.
        body: Value,
    },
    /// The suite's own watch shows a version.
    Seen {
        /// Of what.
        #[serde(flatten)]
        key: Key,
        /// Which.
        resource_version: String,
        /// It was deleted.
        deleted: bool,
        /// The object.
        object: Value,
    },
    /// A pod that serves probes is ready.
    Backend {
        /// Its server, what its identities begin with.
        server: String,
        /// Its node.
        node: String,
        /// Its addresses, by which slices list it.
        addresses: Vec<IpAddr>,
    },
    /// What came of the attempts of one client to one target, written when their phase is over.
    Attempts(Attempts),
    /// The agent of a node.
    Agent {
        /// The node.
        node: String,
        /// Its state.
        #[serde(flatten)]
        state: AgentState,
    },
    /// A fault was made, changed or healed.
    Fault {
        /// What.
        what: String,
    },
    /// A fence was seen on a node.
    Fence {
        /// Its number.
        number: u32,
        /// The node.
        node: String,
        /// From the write to the first answer, in milliseconds.
        took_ms: u64,
    },
}

#[derive(Serialize)]
struct Entry<'a> {
    time_us: u64,
    #[serde(flatten)]
    event: &'a Event,
}

/// The files that it is written to, line by line.
#[derive(Debug)]
pub struct History {
    files: Mutex<Files>,
}

#[derive(Debug)]
struct Files {
    events: Lines,
    attempts: Lines,
    /// Where the attempts are.
    removable: PathBuf,
    /// Of the attempts of the phase that is under way.
    summary: Summary,
    /// The first that could not be written.
    broken: Option<io::Error>,
}

impl History {
    /// Starts new files in a folder.
    ///
    /// # Errors
    /// They can't be made.
    pub fn create(folder: &Path) -> io::Result<Self> {
        let removable = folder.join(ATTEMPTS);
        Ok(Self {
            files: Mutex::new(Files {
                events: Lines::create(&folder.join(HISTORY))?,
                attempts: Lines::create(&removable)?,
                removable,
                summary: Summary::default(),
                broken: None,
            }),
        })
    }

    /// Adds an event, stamped now. It is on the disk when this returns.
    pub fn add(&self, event: &Event) {
        let mut files = self.files();
        let written = files.add(event);
        files.note(written);
    }

    /// Adds an attempt, by the line of JSON that the client wrote; its time is when it arrived.
    ///
    /// These are many, and reach the disk with the next phase or fault, or when there are enough of them to be compressed.
    pub fn attempt(&self, line: &str, attempt: &Attempt) {
        let mut files = self.files();
        files.summary.add(attempt);
        let fields = line.strip_prefix('{').unwrap_or(line);
        let line = format_args!(r#"{{"time_us":{},"event":"attempt",{fields}"#, now_us());
        let written = files.attempts.write(line);
        files.note(written);
    }

    /// Ends the files; what comes later is not written. Attempts are removed unless they are to be kept: what
    /// came of them in each phase stays.
    ///
    /// # Errors
    /// Something could not be written, now or before.
    pub fn end(&self, keeps_attempts: bool) -> io::Result<()> {
        let mut files = self.files();
        let ended = files.end(keeps_attempts);
        files.note(ended);
        files.broken.take().map_or(Ok(()), Err)
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn add(&mut self, event: &Event) -> io::Result<()> {
        if let Event::Phase { name } = event {
            self.summarize(Some(name))?;
        }
        self.write(event)?;
        self.events.flush()?;
        if matches!(event, Event::Phase { .. } | Event::Fault { .. }) {
            self.attempts.flush()?;
        }
        Ok(())
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        let entry = Entry {
            time_us: now_us(),
            event,
        };
        self.events.write(serde_json::to_string(&entry)?)
    }

    /// What came of the attempts of the phase that is over.
    fn summarize(&mut self, next: Option<&str>) -> io::Result<()> {
        for attempts in self.summary.take(next.unwrap_or_default()) {
            self.write(&Event::Attempts(attempts))?;
        }
        Ok(())
    }

    fn end(&mut self, keeps_attempts: bool) -> io::Result<()> {
        self.summarize(None)?;
        self.events.end()?;
        self.attempts.end()?;
        if keeps_attempts {
            return Ok(());
        }
        fs::remove_file(&self.removable)
    }

    fn note(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            tracing::error!("failed to write the history: {error}");
            self.broken.get_or_insert(error);
        }
    }
}

/// Microseconds since the Unix epoch.
#[must_use]
pub fn now_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
