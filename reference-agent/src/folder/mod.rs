//! Objects from the files of a folder, instead of an API server: for tests, demonstrations, and nodes without one.
//!
//! ```text
//! folder ─▶ Scanner: files that have changed, and are complete ─▶ read: documents ─▶ Collection: objects that count
//!    ▲                                                                                      │ differences
//!    └── inotify, and a scan every POLL                                                     ▼
//!                                                                                         events
//! ```
//!
//! Files: `scanner`, `read` (one file → objects), `collection`.
//!
//! # Rules
//! - Files whose names end in `.yaml`, `.yml` or `.json`, directly in the folder; symbolic links are followed, names
//!   that begin with a dot are left out (as in a mounted ConfigMap). A file has any number of YAML documents, which may
//!   be Lists. Objects without a namespace are in `default`.
//! - Services, EndpointSlices, Nodes and ServiceCIDRs are taken, in the API's versions. Other kinds are logged once, and
//!   ignored.
//! - A change or deletion of a file counts after [`SETTLE`] without another one, so that no half-written file is read.
//!   It is safest to write files elsewhere and rename them into the folder.
//! - A file that can't be read keeps its last contents, and is in `/findings` and `/readyz`. At the start its objects are
//!   waited for, for at most [`BROKEN_LIMIT`].
//! - Of an object in several files, or several times in one, the first one by file name counts. The others are findings.
//! - A folder that can't be read deletes no object; an empty one deletes all.
//!
//! # Bounds
//! [`FILES`] files of [`SIZE`] bytes. All objects are held in memory, to find changes.

mod collection;
mod read;
mod scanner;

use std::{
    io,
    panic::resume_unwind,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use notify::{Watcher as _, event::AccessKind};
use tokio::{sync::mpsc, task::JoinError};

use self::{collection::Collection, scanner::Scanner};
use crate::{
    feed::{Closed, EventSender, Feed},
    findings::{Finding, Reason},
    ledger::{Origin, Subject},
    model::Event,
    readiness::Component,
    reports::Reports,
};

/// Longest time between two scans, for changes without inotify, as on network file systems.
pub const POLL: Duration = Duration::from_secs(2);
/// Time without a change after which a file is read.
pub const SETTLE: Duration = Duration::from_millis(100);
/// How long files that can't be read delay the first list.
pub const BROKEN_LIMIT: Duration = Duration::from_secs(5);
/// Most files that are read; the first ones by name.
pub const FILES: usize = 10_000;
/// Most bytes of a file.
pub const SIZE: u64 = 256 << 20;

/// The contents of a folder at one moment.
#[derive(Debug)]
pub struct Reading {
    /// Events of all objects, and then of the ends of all lists.
    pub events: Vec<Event>,
    /// Findings about objects and files.
    pub findings: Vec<(Subject, Finding)>,
}

/// A folder that objects are read from.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens a folder, and checks that it can be listed.
    ///
    /// # Errors
    /// It is no folder, or can't be listed.
    pub fn open(path: &Path) -> io::Result<Self> {
        path.read_dir()?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// A feed of its objects.
    pub fn feed(self, reports: &Reports) -> Feed {
        let reports = reports.clone();
        Feed::new(|events| async move {
            let closed = events.clone();
            tokio::select! {
                () = closed.closed() => {}
                Closed = follow(self.path, events, reports) => {}
            }
        })
    }

    /// Reads everything once.
    ///
    /// # Errors
    /// It can't be listed.
    pub fn read_once(&self) -> io::Result<Reading> {
        let mut collection = Collection::default();
        for (path, _) in scanner::list(&self.path)? {
            collection.put(path.clone(), read::read(&path));
        }
        let update = collection.update();
        let events = update.events.into_iter().map(|one| one.event);
        let about = |(subject, findings): (Subject, Vec<Finding>)| {
            findings
                .into_iter()
                .map(move |finding| (subject.clone(), finding))
        };
        Ok(Reading {
            events: events.chain(Collection::synced()).collect(),
            findings: update
                .read
                .into_iter()
                .chain(update.chosen)
                .flat_map(about)
                .collect(),
        })
    }
}

async fn follow(path: PathBuf, events: EventSender, reports: Reports) -> Closed {
    // One message is enough, as a scan covers all files.
    let (touch, mut touched) = mpsc::channel(1);
    let mut watcher = watch(&path, touch.clone());
    let mut scanner = Scanner::new(path.clone());
    let mut collection = Collection::default();
    let begin = Instant::now();
    let mut synced = false;
    loop {
        let scanning = tokio::task::spawn_blocking(move || {
            let scanned = scan(&mut scanner, &mut collection);
            (scanner, collection, scanned)
        });
        let Some((same, collected, scanned)) = joined(scanning.await) else {
            return Closed;
        };
        (scanner, collection) = (same, collected);
        let settled = *scanned.as_ref().unwrap_or(&true);
        let broken = collection.broken();
        let complete = synced || (settled && (broken.is_empty() || begin.elapsed() >= BROKEN_LIMIT));
        if scanned.is_ok()
            && complete
            && let Err(closed) = send(&mut collection, &events, &reports, &mut synced).await
        {
            return closed;
        }
        let trouble = scanned
            .err()
            .map(|error| format!("the folder {} can't be read: {error}", path.display()));
        reports
            .readiness
            .set_reasons(Component::Source, trouble.into_iter().chain(broken).collect());
        if watcher.is_none() {
            watcher = watch(&path, touch.clone());
        }
        let pause = if settled && complete { POLL } else { SETTLE };
        tokio::select! {
            _ = touched.recv() => {}
            () = tokio::time::sleep(pause) => {
                // A file that could not be read may be readable now, without a change.
                if settled {
                    scanner.forget(collection.broken_files());
                }
            }
        }
    }
}

/// The result of a task; `None`: the runtime ends. A panic is resumed here, so that the agent ends with an error instead
/// of ignoring the folder from then on.
fn joined<T>(result: Result<T, JoinError>) -> Option<T> {
    match result {
        Ok(result) => Some(result),
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

/// Reads files that have changed. The result: whether no other file is changing.
fn scan(scanner: &mut Scanner, collection: &mut Collection) -> io::Result<bool> {
    let changes = scanner.scan(Instant::now())?;
    for path in changes.gone {
        collection.remove(&path);
    }
    for path in changes.changed {
        let objects = read::read(&path);
        collection.put(path, objects);
    }
    Ok(changes.settled)
}

async fn send(
    collection: &mut Collection,
    events: &EventSender,
    reports: &Reports,
    synced: &mut bool,
) -> Result<(), Closed> {
    let update = collection.update();
    for (subject, findings) in update.read {
        reports.ledger.set(subject, Origin::Read, findings);
    }
    for (subject, findings) in update.chosen {
        reports.ledger.set(subject, Origin::Chosen, findings);
    }
    events.send_at_once(update.events).await?;
    if !std::mem::replace(synced, true) {
        for event in Collection::synced() {
            events.send(event).await?;
        }
        tracing::info!("read all files");
    }
    Ok(())
}

/// `None`: inotify fails now; scans go on at intervals.
fn watch(path: &Path, touch: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    let handler = move |event: notify::Result<notify::Event>| {
        // Every scan opens the folder, which is an event, too, and must not cause the next scan.
        if event.is_ok_and(|event| matches!(event.kind, notify::EventKind::Access(AccessKind::Open(_)))) {
            return;
        }
        // Full: a scan is due anyway.
        let _full = touch.try_send(());
    };
    let watcher = notify::recommended_watcher(handler).and_then(|mut watcher| {
        watcher.watch(path, notify::RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    watcher
        .inspect_err(
            |error| tracing::info!(folder = %path.display(), %error, "no inotify; looking every {POLL:?}"),
        )
        .ok()
}

fn malformed(message: String) -> Finding {
    Finding {
        reason: Reason::Malformed,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[should_panic(expected = "of a reader")]
    async fn a_panic_of_a_reader_is_one_of_the_feed() {
        let reading = tokio::task::spawn_blocking(|| panic!("of a reader"));
        let (): () = joined(reading.await).expect("the runtime goes on");
    }

    #[tokio::test]
    async fn where_the_runtime_ends_a_scan_has_no_result() {
        let scanning = tokio::spawn(std::future::pending::<()>());
        scanning.abort();
        assert_eq!(joined(scanning.await), None);
    }
}
