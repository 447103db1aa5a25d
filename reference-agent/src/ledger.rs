//! The current findings of every object.
//!
//! ```text
//! reading an object ─┐            ┌─▶ log: once when they begin, once when they are over
//! planning, writing ─┴─▶ Ledger ──┼─▶ gauge by reason, /findings
//!                                 └─▶ notices, for Kubernetes Events
//! ```
//!
//! # Bounds
//! Objects that exist and have findings; of each and of each origin [`SENTENCES`] messages, the rest is counted.
//! [`LINES`] log lines at once and [`LINES_PER_SECOND`] on average; the next line has the number of those left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use tokio::sync::mpsc;

use crate::{
    findings::{Finding, Reason},
    metrics::Metrics,
    model::Kind,
    names::ObjectName,
};

/// Messages that are kept of each object and origin.
pub const SENTENCES: usize = 16;
/// Log lines at once.
pub const LINES: f64 = 100.0;
/// Log lines on average.
pub const LINES_PER_SECOND: f64 = 10.0;

/// The subject of a finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// An object; a Node or ServiceCIDR has no namespace.
    Object(Kind, ObjectName),
    /// A file of the folder that objects are read from.
    File(PathBuf),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(Kind::Service, name) => write!(f, "service {name}"),
            Self::Object(Kind::EndpointSlice, name) => write!(f, "endpointslice {name}"),
            Self::Object(Kind::Node, name) => write!(f, "node {}", name.name),
            Self::Object(Kind::ServiceCidr, name) => write!(f, "servicecidr {}", name.name),
            Self::File(path) => write!(f, "file {}", path.display()),
        }
    }
}

/// The step that found it. Each step replaces only its own findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Reading the object.
    Read,
    /// Choosing it among others of the same name.
    Chosen,
    /// Planning and writing.
    Planned,
    /// Serving its health check node port.
    HealthCheck,
}

/// A finding that is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its object.
    pub subject: Subject,
    /// What it is.
    pub finding: Finding,
}

/// All findings of one agent. Clones are the same ledger.
#[derive(Clone, Debug)]
pub struct Ledger {
    state: Arc<Mutex<State>>,
    metrics: Metrics,
    notices: Option<mpsc::Sender<Notice>>,
}

#[derive(Debug)]
struct State {
    entries: BTreeMap<(Subject, Origin), Entry>,
    counts: BTreeMap<Reason, i64>,
    lines: f64,
    refilled: Instant,
    left_out: usize,
}

#[derive(Debug, Default)]
struct Entry {
    sentences: Vec<Finding>,
    counts: BTreeMap<Reason, i64>,
}

impl Ledger {
    /// Without findings. New ones go to `notices`, unless too many wait there.
    pub fn new(metrics: Metrics, notices: Option<mpsc::Sender<Notice>>) -> Self {
        let state = State {
            entries: BTreeMap::new(),
            counts: BTreeMap::new(),
            lines: LINES,
            refilled: Instant::now(),
            left_out: 0,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            metrics,
            notices,
        }
    }

    /// The findings that `origin` has about `subject` are these now, and no others.
    pub fn set(&self, subject: Subject, origin: Origin, findings: Vec<Finding>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (subject, origin);
        let before = state.entries.remove(&key).unwrap_or_default();
        if findings.is_empty() && before.counts.is_empty() {
            return;
        }
        let mut counts = BTreeMap::new();
        for finding in &findings {
            *counts.entry(finding.reason).or_default() += 1;
        }
        state.count(&self.metrics, &before.counts, &counts);
        let fresh = findings
            .iter()
            .filter(|finding| !before.sentences.contains(finding));
        let fresh: Vec<Finding> = fresh.take(SENTENCES).cloned().collect();
        state.log(&key.0, &fresh, findings.len());
        for finding in fresh {
            self.notify(&key.0, finding);
        }
        if !findings.is_empty() {
            let sentences = findings.into_iter().take(SENTENCES).collect();
            state.entries.insert(key, Entry { sentences, counts });
        }
    }

    /// One line for each message, by object; beyond [`SENTENCES`] a number.
    pub fn text(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for ((subject, _), entry) in &state.entries {
            for finding in &entry.sentences {
                let _ = writeln!(text, "{subject}: {finding}");
            }
            let all: i64 = entry.counts.values().sum();
            let more = all - i64::try_from(entry.sentences.len()).unwrap_or(i64::MAX);
            if more > 0 {
                let _ = writeln!(text, "{subject}: and {more} more");
            }
        }
        text
    }

    /// Sends notices of current findings again: the first message of each object and reason, at most `most`.
    pub fn repeat(&self, most: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sent = BTreeSet::new();
        for ((subject, _), entry) in &state.entries {
            for finding in &entry.sentences {
                if sent.len() < most && sent.insert((subject, finding.reason)) {
                    self.notify(subject, finding.clone());
                }
            }
        }
    }

    fn notify(&self, subject: &Subject, finding: Finding) {
        let Some(notices) = &self.notices else { return };
        let subject = subject.clone();
        if notices.try_send(Notice { subject, finding }).is_err() {
            self.metrics.events.at(["dropped"]).inc();
        }
    }
}

impl State {
    fn count(&mut self, metrics: &Metrics, before: &BTreeMap<Reason, i64>, after: &BTreeMap<Reason, i64>) {
        let changes = before.iter().map(|(reason, count)| (reason, -count));
        for (reason, change) in changes.chain(after.iter().map(|(reason, count)| (reason, *count))) {
            let count = self.counts.entry(*reason).or_default();
            *count += change;
            metrics.findings.at([&reason.to_string()]).set(*count);
        }
    }

    /// One line for all findings of the object: a slice has up to a thousand endpoints.
    fn log(&mut self, subject: &Subject, fresh: &[Finding], all: usize) {
        if fresh.is_empty() && all > 0 {
            return;
        }
        let now = Instant::now();
        let gained = now.duration_since(self.refilled).as_secs_f64() * LINES_PER_SECOND;
        self.lines = (self.lines + gained).min(LINES);
        self.refilled = now;
        if self.lines < 1.0 {
            self.left_out += 1;
            return;
        }
        self.lines -= 1.0;
        let left_out = std::mem::take(&mut self.left_out);
        // Lines of a Service are found by this field.
        let service = match subject {
            Subject::Object(Kind::Service, name) => Some(tracing::field::display(name)),
            _ => None,
        };
        match fresh.first() {
            Some(first) => {
                tracing::warn!(service, object = %subject, findings = all, %first, lines_left_out = left_out, "parts of an object are left out");
            }
            None => {
                tracing::info!(service, object = %subject, lines_left_out = left_out, "all of it counts again");
            }
        }
    }
}
