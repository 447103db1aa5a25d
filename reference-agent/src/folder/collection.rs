//! What all files have together, and what of it counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{
    malformed,
    read::{Contents, Found},
};
use crate::{
    findings::Finding,
    ledger::Subject,
    model::{Event, Kind},
    names::ObjectName,
};

/// An event, and when what it tells of happened.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) event: Event,
    pub(super) triggered: Option<SystemTime>,
}

/// What has changed since the last update.
#[derive(Debug, Default)]
pub(super) struct Update {
    pub(super) events: Vec<Told>,
    /// What was found in reading; of each subject that had or has findings.
    pub(super) read: Vec<(Subject, Vec<Finding>)>,
    /// What was found in choosing.
    pub(super) chosen: Vec<(Subject, Vec<Finding>)>,
}

/// All files.
#[derive(Debug, Default)]
pub(super) struct Collection {
    files: BTreeMap<PathBuf, File>,
    told: BTreeMap<(Kind, ObjectName), Found>,
    /// Subjects that had findings at the last update.
    read: BTreeSet<Subject>,
    chosen: BTreeSet<Subject>,
    ignored: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct File {
    contents: Contents,
    problem: Option<String>,
    /// Whether it ever could be read.
    read: bool,
}

impl Collection {
    /// A file is like this. One that can't be read keeps what it had.
    pub(super) fn put(&mut self, path: PathBuf, contents: Result<Contents, String>) {
        let file = self.files.entry(path).or_default();
        match contents {
            Ok(contents) => {
                *file = File {
                    contents,
                    problem: None,
                    read: true,
                };
            }
            Err(problem) => file.problem = Some(problem),
        }
    }

    /// A file is not there any more.
    pub(super) fn remove(&mut self, path: &Path) {
        self.files.remove(path);
    }

    /// Files that can't be used, one sentence each.
    pub(super) fn broken(&self) -> Vec<String> {
        let problem = |(path, file): (&PathBuf, &File)| {
            let problem = file.problem.as_ref()?;
            let counts = if file.read {
                "what it said before counts"
            } else {
                "nothing of it counts"
            };
            Some(format!(
                "the file {} can't be used, and {counts}: {problem}",
                path.display()
            ))
        };
        self.files.iter().filter_map(problem).collect()
    }

    /// The paths of these.
    pub(super) fn broken_files(&self) -> impl Iterator<Item = &Path> {
        let broken = self.files.iter().filter(|(_, file)| file.problem.is_some());
        broken.map(|(path, _)| path.as_path())
    }

    /// What makes the agent know what the files say now.
    pub(super) fn update(&mut self) -> Update {
        let mut update = Update::default();
        let mut counts: BTreeMap<(Kind, ObjectName), (&Path, &Found)> = BTreeMap::new();
        let mut read: BTreeMap<Subject, Vec<Finding>> = BTreeMap::new();
        let mut chosen: BTreeMap<Subject, Vec<Finding>> = BTreeMap::new();
        for (path, file) in &self.files {
            let findings = file.problem.iter().map(|problem| malformed(problem.clone()));
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
        for (key, found) in &self.told {
            if !counts.contains_key(key) {
                update.events.push(Told {
                    event: deleted(found),
                    triggered: None,
                });
            }
        }
        for (key, (_, found)) in &counts {
            if self.told.get(key) != Some(*found) {
                update.events.push(Told {
                    event: found.event.clone(),
                    triggered: found.triggered,
                });
            }
        }
        self.told = counts
            .into_iter()
            .map(|(key, (_, found))| (key, found.clone()))
            .collect();
        update.read = differences(&mut self.read, read);
        update.chosen = differences(&mut self.chosen, chosen);
        self.name_ignored();
        update
    }

    /// The events that everything has been told.
    pub(super) fn synced() -> impl Iterator<Item = Told> {
        Kind::ALL.into_iter().map(|kind| Told {
            event: Event::Synced(kind),
            triggered: None,
        })
    }

    /// Once for each kind of object.
    fn name_ignored(&mut self) {
        for kind in self.files.values().flat_map(|file| &file.contents.ignored) {
            if self.ignored.insert(kind.clone()) {
                tracing::info!(kind, "objects of this kind in the folder are left alone");
            }
        }
    }
}

/// Findings of now, and none for subjects that have no more.
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

fn deleted(found: &Found) -> Event {
    let name = found.name.clone();
    match found.kind {
        Kind::Service => Event::ServiceDeleted(name),
        Kind::EndpointSlice => Event::SliceDeleted(name),
        Kind::Node => Event::NodeDeleted(name.name.to_string()),
        Kind::ServiceCidr => Event::ServiceCidrDeleted(name.name.to_string()),
    }
}
