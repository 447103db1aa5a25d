//! Objects from the files of a folder, instead of an API server: for tests, demonstrations, and nodes without one.
//!
//! ```text
//! folder ─▶ Looker: which files have changed, and are whole ─▶ read: documents ─▶ Collection: which object counts
//!    ▲                                                                                   │ what differs
//!    └── inotify, and a look every POLL                                                  ▼ from before
//!                                                                                      events
//! ```
//!
//! # Rules
//! - Files whose names end in `.yaml`, `.yml` or `.json`, directly in the folder; symbolic links are followed, names
//!   that begin with a dot are left out (as in a mounted ConfigMap). A file has any number of YAML documents, which may
//!   be Lists. Objects without a namespace are in `default`.
//! - Services, EndpointSlices, Nodes and ServiceCIDRs are taken, in the versions that the API has them in; others are named in the log
//!   once and left alone.
//! - A file counts when it has not changed for [`SETTLE`], so that a half-written one is not read; so does its end.
//!   Written elsewhere and renamed into the folder is safest.
//! - A file that can't be read says what it said when it last could, and is named by `/findings` and `/readyz`. At the
//!   start its objects are waited for, but for no longer than [`PATIENCE`].
//! - An object that is in several files counts as the first of them has it, in the order of their names; within a file,
//!   the first. The others are findings.
//! - A folder that can't be read takes nothing away; one that is empty takes everything away.
//!
//! # Bounds
//! [`FILES`] files of [`SIZE`] bytes. What is read is held in memory, to tell what has changed.

mod collection;
mod looker;
mod read;

use std::{
    io,
    panic::resume_unwind,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use notify::{Watcher as _, event::AccessKind};
use tokio::{sync::mpsc, task::JoinError};

use self::{collection::Collection, looker::Looker};
use crate::{
    feed::{Closed, EventSender, Feed},
    findings::{Finding, Reason},
    ledger::{Origin, Subject},
    model::Event,
    readiness::Component,
    reports::Reports,
};

/// The longest time from one look to the next: what becomes of changes that inotify does not tell, as on file systems
/// of other machines.
pub const POLL: Duration = Duration::from_secs(2);
/// How long a file must have been as it is.
pub const SETTLE: Duration = Duration::from_millis(100);
/// How long files that can't be read hold up the first list.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Files that are read; the first by name.
pub const FILES: usize = 10_000;
/// Bytes of a file.
pub const SIZE: u64 = 256 << 20;

/// What a folder had at one moment.
#[derive(Debug)]
pub struct Reading {
    /// Events that end with all kinds' being synced.
    pub events: Vec<Event>,
    /// What of it can't be used.
    pub findings: Vec<(Subject, Finding)>,
}

/// A folder that objects are read from.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Looks whether it can be read at all.
    ///
    /// # Errors
    /// It is no folder, or can't be listed.
    pub fn open(path: &Path) -> io::Result<Self> {
        path.read_dir()?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// Tells what is in it until nobody listens.
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

    /// Everything that is in it now.
    ///
    /// # Errors
    /// It can't be listed.
    pub fn read_once(&self) -> io::Result<Reading> {
        let mut collection = Collection::default();
        for (path, _) in looker::list(&self.path)? {
            collection.put(path.clone(), read::read(&path));
        }
        let update = collection.update();
        let told = update.events.into_iter().chain(Collection::synced());
        let about = |(subject, findings): (Subject, Vec<Finding>)| {
            findings
                .into_iter()
                .map(move |finding| (subject.clone(), finding))
        };
        Ok(Reading {
            events: told.map(|told| told.event).collect(),
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
    // One is enough: whatever has changed, all is looked at.
    let (touch, mut touched) = mpsc::channel(1);
    let mut watcher = watch(&path, touch.clone());
    let mut looker = Looker::new(path.clone());
    let mut collection = Collection::default();
    let begin = Instant::now();
    let mut synced = false;
    loop {
        let looking = tokio::task::spawn_blocking(move || {
            let looked = look(&mut looker, &mut collection);
            (looker, collection, looked)
        });
        let Some((same, collected, looked)) = ended(looking.await) else {
            return Closed;
        };
        (looker, collection) = (same, collected);
        let settled = *looked.as_ref().unwrap_or(&true);
        let broken = collection.broken();
        let complete = synced || (settled && (broken.is_empty() || begin.elapsed() >= PATIENCE));
        if looked.is_ok()
            && complete
            && let Err(closed) = tell(&mut collection, &events, &reports, &mut synced).await
        {
            return closed;
        }
        let trouble = looked
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
                // What could not be read may be readable now, without having changed.
                if settled {
                    looker.forget(collection.broken_files());
                }
            }
        }
    }
}

/// What a task came to; `None`: the runtime ends. Its panic goes on in who waited for it, so that the agent ends with an
/// error: nobody would look at the folder again, and all would seem well.
fn ended<T>(joined: Result<T, JoinError>) -> Option<T> {
    match joined {
        Ok(result) => Some(result),
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

/// Reads what has changed; the result says whether everything has settled.
fn look(looker: &mut Looker, collection: &mut Collection) -> io::Result<bool> {
    let changes = looker.look(Instant::now())?;
    for path in changes.gone {
        collection.remove(&path);
    }
    for path in changes.changed {
        let objects = read::read(&path);
        collection.put(path, objects);
    }
    Ok(changes.settled)
}

async fn tell(
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
    for told in update.events {
        events.send_triggered(told.event, told.triggered).await?;
    }
    if !std::mem::replace(synced, true) {
        for told in Collection::synced() {
            events.send(told.event).await?;
        }
        tracing::info!("read all files");
    }
    Ok(())
}

/// `None`: not now; looking goes on without.
fn watch(path: &Path, touch: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    let told = move |told: notify::Result<notify::Event>| {
        // Every look opens the folder, and that is told, too: whoever looks again for it never rests.
        if told.is_ok_and(|event| matches!(event.kind, notify::EventKind::Access(AccessKind::Open(_)))) {
            return;
        }
        // Full: a look is due anyway.
        let _full = touch.try_send(());
    };
    let watcher = notify::recommended_watcher(told).and_then(|mut watcher| {
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
        let (): () = ended(reading.await).expect("the runtime goes on");
    }

    #[tokio::test]
    async fn where_the_runtime_ends_a_look_is_nothing() {
        let looking = tokio::spawn(std::future::pending::<()>());
        looking.abort();
        assert_eq!(ended(looking.await), None);
    }
}
