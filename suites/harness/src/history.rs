//! The one time-stamped history of a case: every API write, every version seen, every probe.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    path::Path,
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use lab::cluster::AgentState;
use oracle::history::{Attempt, Served};
use serde::Serialize;
use serde_json::Value;

use crate::objects::Key;

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
    /// A client's attempt, written when its line arrived.
    Attempt(Attempt),
    /// A line of a backend's log, written when it was read.
    Served {
        /// Whose.
        pod: String,
        /// The line.
        #[serde(flatten)]
        line: Served,
    },
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

/// The file that it is written to, line by line.
#[derive(Debug)]
pub struct History {
    file: Mutex<BufWriter<File>>,
}

impl History {
    /// Starts a new file.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: Mutex::new(BufWriter::new(File::create(path)?)),
        })
    }

    /// Adds an event, stamped now.
    pub fn add(&self, event: &Event) {
        let entry = Entry {
            time_us: now_us(),
            event,
        };
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = serde_json::to_writer(&mut *file, &entry)
            .map_err(io::Error::from)
            .and_then(|()| file.write_all(b"\n"))
            // Probes are many and flushed with what follows; everything else is rare and must survive a crash.
            .and_then(|()| {
                if matches!(event, Event::Attempt(_)) {
                    Ok(())
                } else {
                    file.flush()
                }
            });
        if let Err(error) = written {
            tracing::error!("failed to write the history: {error}");
        }
    }

    /// Brings everything to the file.
    pub fn flush(&self) -> io::Result<()> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

/// Microseconds since the Unix epoch.
#[must_use]
pub fn now_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
