//! The objects of all files, and those of them that count.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{
    malformed,
    read::{Contents, FileObject, ReadError},
};
use crate::{
    feed::Change,
    findings::Finding,
    ledger::Subject,
    model::{Event, Kind},
    names::ObjectName,
};

/// What has changed since the last update.
#[derive(Debug, Default)]
pub(super) struct Update {
    pub(super) events: Vec<Change>,
    /// Findings of reading, of each subject that had or has any.
    pub(super) read: Vec<(Subject, Vec<Finding>)>,
    /// Findings of choosing among objects of the same name.
    pub(super) chosen: Vec<(Subject, Vec<Finding>)>,
}

/// All files.
#[derive(Debug, Default)]
pub(super) struct Collection {
    files: BTreeMap<PathBuf, File>,
    /// The objects that the last events were about.
    sent: BTreeMap<(Kind, ObjectName), FileObject>,
    /// Subjects that had findings at the last update.
    read: BTreeSet<Subject>,
    chosen: BTreeSet<Subject>,
    ignored: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct File {
    contents: Contents,
    error: Option<ReadError>,
    /// Whether it could ever be read.
    read: bool,
}

impl Collection {
    /// Puts a file. One that can't be read keeps its last contents.
    pub(super) fn put(&mut self, path: PathBuf, contents: Result<Contents, ReadError>) {
        let file = self.files.entry(path).or_default();
        match contents {
            Ok(contents) => {
                *file = File {
                    contents,
                    error: None,
                    read: true,
                };
            }
            Err(error) => file.error = Some(error),
        }
    }

    /// Removes a file.
    pub(super) fn remove(&mut self, path: &Path) {
        self.files.remove(path);
    }

    /// Files that can't be used, one sentence each.
    pub(super) fn broken(&self) -> Vec<String> {
        let reason = |(path, file): (&PathBuf, &File)| {
            let error = file.error.as_ref()?;
            let counts = if file.read {
                "what it said before counts"
            } else {
                "nothing of it counts"
            };
            Some(format!(
                "the file {} can't be used, and {counts}: {error}",
                path.display()
            ))
        };
        self.files.iter().filter_map(reason).collect()
    }

    /// The paths of files that can't be used.
    pub(super) fn broken_files(&self) -> impl Iterator<Item = &Path> {
        let broken = self.files.iter().filter(|(_, file)| file.error.is_some());
        broken.map(|(path, _)| path.as_path())
    }

    /// The changes since the last update.
    pub(super) fn update(&mut self) -> Update {
        let mut update = Update::default();
        let mut counts: BTreeMap<(Kind, ObjectName), (&Path, &FileObject)> = BTreeMap::new();
        let mut read: BTreeMap<Subject, Vec<Finding>> = BTreeMap::new();
        let mut chosen: BTreeMap<Subject, Vec<Finding>> = BTreeMap::new();
        for (path, file) in &self.files {
            let findings = file.error.iter().map(|error| malformed(error.to_string()));
            let findings: Vec<_> = findings.chain(file.contents.findings.iter().cloned()).collect();
            if !findings.is_empty() {
                read.insert(Subject::File(path.clone()), findings);
            }
            for found in &file.contents.objects {
                let key = (found.kind, found.name.clone());
                let subject = || Subject::Object(found.kind, found.name.clone());
                if let Some((first, _)) = counts.get(&key) {
                    let message = format!(
                        "it is in {} and in {}; that of the first file by name counts",
                        first.display(),
                        path.display()
                    );
                    chosen.entry(subject()).or_default().push(malformed(message));
                    continue;
                }
                if !found.findings.is_empty() {
                    read.insert(subject(), found.findings.clone());
                }
                counts.insert(key, (path, found));
            }
        }
        for (key, found) in &self.sent {
            if !counts.contains_key(key) {
                update.events.push(deleted(found).into());
            }
        }
        for (key, (_, found)) in &counts {
            if self.sent.get(key) != Some(*found) {
                update.events.push(Change {
                    event: found.event.clone(),
                    triggered: found.triggered,
                });
            }
        }
        self.sent = counts
            .into_iter()
            .map(|(key, (_, found))| (key, found.clone()))
            .collect();
        update.read = differences(&mut self.read, read);
        update.chosen = differences(&mut self.chosen, chosen);
        self.log_ignored();
        update
    }

    /// The ends of the first lists.
    pub(super) fn synced() -> impl Iterator<Item = Event> {
        Kind::ALL.into_iter().map(Event::Synced)
    }

    /// Logs each ignored kind once.
    fn log_ignored(&mut self) {
        for kind in self.files.values().flat_map(|file| &file.contents.ignored) {
            if self.ignored.insert(kind.clone()) {
                tracing::info!(kind, "objects of this kind in the folder are left alone");
            }
        }
    }
}

/// The current findings, and an empty list for subjects that have none any more.
fn differences(
    before: &mut BTreeSet<Subject>,
    now: BTreeMap<Subject, Vec<Finding>>,
) -> Vec<(Subject, Vec<Finding>)> {
    let subjects: BTreeSet<Subject> = now.keys().cloned().collect();
    let over = std::mem::replace(before, subjects)
        .into_iter()
        .filter(|subject| !now.contains_key(subject));
    let over: Vec<_> = over.map(|subject| (subject, Vec::new())).collect();
    over.into_iter().chain(now).collect()
}

fn deleted(found: &FileObject) -> Event {
    let name = found.name.clone();
    match found.kind {
        Kind::Service => Event::ServiceDeleted(name),
        Kind::EndpointSlice => Event::SliceDeleted(name),
        Kind::Node => Event::NodeDeleted(name.name.to_string()),
        Kind::ServiceCidr => Event::ServiceCidrDeleted(name.name.to_string()),
    }
}
