//! The pods of one node for other modules: for status, and to start processes in them.

use std::{
    collections::BTreeMap,
    fs,
    net::IpAddr,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::ResourceExt;
use lab_apiserver::kubelet::PodOnNode;

use super::{
    sandbox::PodPlace,
    status::{Facts, State},
    tail::Run,
};
use crate::protocol::PodView;

/// Pods by namespace and name. A newer pod replaces an older one of the same name.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pods: Mutex<BTreeMap<(String, String), Entry>>,
}

#[derive(Debug)]
struct Entry {
    uid: Option<String>,
    view: PodView,
    place: Option<PodPlace>,
    run: Option<Run>,
    running: bool,
}

/// State of a pod, for logs and exec.
pub(super) struct PodSnapshot {
    pub(super) addresses: Vec<IpAddr>,
    /// Place for its processes.
    pub(super) place: Option<PodPlace>,
    /// The current run of its container.
    pub(super) run: Option<Run>,
    /// Whether the container runs.
    pub(super) running: bool,
}

impl Table {
    /// All pods, sorted by namespace and name.
    pub(crate) fn views(&self) -> Vec<PodView> {
        self.lock().values().map(|entry| entry.view.clone()).collect()
    }

    /// The place for processes of a pod; `None` without such a pod, or before it has a sandbox.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<PodPlace> {
        self.lock()
            .get(&(namespace.to_owned(), name.to_owned()))?
            .place
            .clone()
    }

    /// State of a pod, unless a newer pod has its name.
    pub(super) fn snapshot(&self, pod: &PodOnNode) -> Option<PodSnapshot> {
        let pods = self.lock();
        let entry = pods.get(&(pod.namespace.clone(), pod.name.clone()))?;
        (entry.uid.as_ref() == Some(&pod.uid)).then(|| PodSnapshot {
            addresses: entry.view.addresses.clone(),
            place: entry.place.clone(),
            run: entry.run.clone(),
            running: entry.running,
        })
    }

    pub(super) fn enter(&self, pod: &Pod) {
        let view = PodView {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            addresses: Vec::new(),
            ready: false,
            restarts: 0,
            reason: String::new(),
        };
        self.lock().insert(
            key(pod),
            Entry {
                uid: pod.uid(),
                view,
                place: None,
                run: None,
                running: false,
            },
        );
    }

    pub(super) fn leave(&self, pod: &Pod) {
        let mut pods = self.lock();
        if pods.get(&key(pod)).is_some_and(|entry| entry.uid == pod.uid()) {
            pods.remove(&key(pod));
        }
    }

    pub(super) fn place(&self, pod: &Pod, addresses: Vec<IpAddr>, place: PodPlace) {
        self.change(pod, |entry| {
            entry.view.addresses = addresses;
            entry.place = Some(place);
        });
    }

    /// A run of the container begins, at the current end of its log.
    pub(super) fn run(&self, pod: &Pod, stdout: &Path, since: Timestamp) {
        let begin = fs::metadata(stdout).map_or(0, |file| file.len());
        self.change(pod, |entry| {
            entry.run = Some(Run {
                stdout: stdout.to_owned(),
                previous: entry.run.take().map(|run| run.begin),
                begin,
                since,
            });
        });
    }

    pub(super) fn displace(&self, pod: &Pod) {
        self.change(pod, |entry| entry.place = None);
    }

    pub(super) fn show(&self, pod: &Pod, facts: &Facts) {
        self.change(pod, |entry| {
            entry.running = matches!(facts.state, State::Running { .. });
            entry.view.ready = facts.ready();
            entry.view.restarts = facts.restarts;
            entry.view.reason = match &facts.state {
                State::Waiting(problem) => problem.reason.to_owned(),
                State::Running { .. } => String::new(),
                State::Ended(end) => format!("exit code {}", end.code),
            };
        });
    }

    fn change(&self, pod: &Pod, change: impl FnOnce(&mut Entry)) {
        let mut pods = self.lock();
        if let Some(entry) = pods.get_mut(&key(pod)).filter(|entry| entry.uid == pod.uid()) {
            change(entry);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Entry>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(pod: &Pod) -> (String, String) {
    (pod.namespace().unwrap_or_default(), pod.name_any())
}
