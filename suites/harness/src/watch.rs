//! The suite's own watch of Services and EndpointSlices: the witness of what versions there were.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt as _;
use kube::{
    Api, Client, ResourceExt as _,
    api::DynamicObject,
    runtime::{WatchStreamExt as _, utils::Backoff, watcher},
};
use serde_json::Value;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use crate::{
    history::{Event, History},
    names::{Key, Kind, OF_SERVICE},
    requests::all,
    verdict::Halt,
};

/// A version that the watch has shown.
#[derive(Clone, Debug)]
pub struct Version {
    /// Which; of a deletion, that of the deletion.
    pub resource_version: String,
    /// The object was deleted.
    pub deleted: bool,
    /// The object.
    pub object: Value,
}

/// The watch. It keeps every version of every object in the namespaces of the case.
#[derive(Debug)]
pub struct Watch {
    seen: Arc<Seen>,
    // Aborted on drop.
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Seen {
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    history: Arc<History>,
}

#[derive(Debug, Default)]
struct State {
    namespaces: BTreeSet<String>,
    versions: BTreeMap<Key, Vec<Version>>,
    synced: BTreeSet<Kind>,
}

const KINDS: [Kind; 2] = [Kind::Service, Kind::EndpointSlice];

impl Watch {
    /// Starts it, and returns when both kinds have been listed.
    ///
    /// Of one namespace, if the suite may use no other.
    pub async fn start(
        client: &Client,
        confined: Option<&str>,
        history: Arc<History>,
        limit: Duration,
    ) -> Result<Self, Halt> {
        let seen = Arc::new(Seen {
            state: Mutex::default(),
            changes: watch::Sender::new(0),
            history,
        });
        let mut tasks = JoinSet::new();
        for kind in KINDS {
            let api = all(client, kind, confined);
            tasks.spawn(follow(api, kind, Arc::clone(&seen)));
        }
        let watch = Self { seen, _tasks: tasks };
        watch
            .until(limit, |state| {
                KINDS.iter().all(|kind| state.synced.contains(kind))
            })
            .await
            .map_err(|()| {
                Halt::Inconclusive(format!("the suite's own watch has no first list after {limit:?}"))
            })?;
        Ok(watch)
    }

    /// Keeps versions of a namespace from now on.
    pub fn follow_namespace(&self, namespace: &str) {
        self.seen.state().namespaces.insert(namespace.to_owned());
    }

    /// Returns when it has a version of an object.
    pub async fn has(&self, key: &Key, resource_version: &str, limit: Duration) -> Result<(), Halt> {
        self.until(limit, |state| {
            state
                .of(key)
                .iter()
                .any(|version| version.resource_version == resource_version)
        })
        .await
        .map_err(|()| {
            Halt::Inconclusive(format!(
                "the suite's own watch does not show version {resource_version} of {key} within {limit:?}"
            ))
        })
    }

    /// How many versions of an object it has.
    pub(crate) fn count(&self, key: &Key) -> usize {
        self.seen.state().of(key).len()
    }

    /// Returns when the watch has shown that an object was deleted, after its first `since` versions. It may exist again by then: API
    /// servers create their own Service anew.
    pub(crate) async fn deleted(&self, key: &Key, since: usize, limit: Duration) -> Result<(), Halt> {
        self.until(limit, |state| was_deleted(state.of(key), since))
            .await
            .map_err(|()| {
                Halt::Inconclusive(format!(
                    "the suite's own watch does not show the deletion of {key} within {limit:?}"
                ))
            })
    }

    /// Returns when the EndpointSlices of a Service, whatever they are called, list exactly these addresses as ready.
    ///
    /// # Errors
    /// Inconclusive if they don't within the limit: what writes them is not under test.
    pub async fn lists(&self, service: &Key, ready: &BTreeSet<String>, limit: Duration) -> Result<(), Halt> {
        self.until(limit, |state| state.ready_of(service) == *ready)
            .await
            .map_err(|()| {
                let found = self.seen.state().ready_of(service);
                Halt::Inconclusive(format!(
                    "EndpointSlices of {service} list other ready addresses after {limit:?}: expected {ready:?}, found {found:?}"
                ))
            })
    }

    /// All versions of an object so far, oldest first.
    #[must_use]
    pub fn versions(&self, key: &Key) -> Vec<Version> {
        self.seen.state().of(key).to_vec()
    }

    /// Versions of an object since one of them.
    ///
    /// # Errors
    /// Inconclusive if the watch does not have that one.
    pub fn versions_since(&self, key: &Key, resource_version: &str) -> Result<usize, Halt> {
        let state = self.seen.state();
        let versions = state.of(key);
        let at = versions
            .iter()
            .position(|version| version.resource_version == resource_version);
        at.map(|at| versions.len() - at - 1).ok_or_else(|| {
            Halt::Inconclusive(format!(
                "the suite's own watch lacks version {resource_version} of {key}"
            ))
        })
    }

    async fn until(&self, limit: Duration, condition: impl Fn(&State) -> bool) -> Result<(), ()> {
        let deadline = Instant::now() + limit;
        let mut changes = self.seen.changes.subscribe();
        loop {
            if condition(&self.seen.state()) {
                return Ok(());
            }
            timeout_at(deadline, changes.changed())
                .await
                .map_err(|_| ())?
                .map_err(|_| ())?;
        }
    }
}

fn was_deleted(versions: &[Version], since: usize) -> bool {
    let new = versions.iter().skip(since);
    new.chain(versions.last()).any(|version| version.deleted)
}

impl State {
    /// Addresses that the EndpointSlices of a Service list as ready.
    fn ready_of(&self, service: &Key) -> BTreeSet<String> {
        let last = self.versions.iter().filter_map(|(key, versions)| {
            let last = versions.last()?;
            let is_of = last.object["metadata"]["labels"][OF_SERVICE] == *service.name;
            (key.kind == Kind::EndpointSlice && is_of && !last.deleted).then_some(&last.object)
        });
        let endpoints = last.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        endpoints
            .filter(|endpoint| endpoint["conditions"]["ready"].as_bool() != Some(false))
            .filter_map(|endpoint| Some(endpoint["addresses"][0].as_str()?.to_owned()))
            .collect()
    }

    fn of(&self, key: &Key) -> &[Version] {
        self.versions.get(key).map_or(&[], Vec::as_slice)
    }
}

impl Seen {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn version(&self, kind: Kind, object: &DynamicObject, deleted: bool) {
        let key = key(kind, object);
        let resource_version = object.resource_version().unwrap_or_default();
        let object = serde_json::to_value(object).unwrap_or_default();
        {
            let mut state = self.state();
            if !state.namespaces.contains(&key.namespace) {
                return;
            }
            let versions = state.versions.entry(key.clone()).or_default();
            let known = |last: &Version| last.deleted == deleted && last.resource_version == resource_version;
            if versions.last().is_some_and(known) {
                return;
            }
            versions.push(Version {
                resource_version: resource_version.clone(),
                deleted,
                object: object.clone(),
            });
        }
        self.history.add(&Event::Seen {
            key,
            resource_version,
            deleted,
            object,
        });
        self.changed();
    }

    /// A new list: what it does not name was deleted unseen.
    fn listed(&self, kind: Kind, listed: &BTreeSet<Key>) {
        let mut state = self.state();
        state.synced.insert(kind);
        for (key, versions) in &mut state.versions {
            let alive = versions.last().is_some_and(|version| !version.deleted);
            if key.kind == kind && alive && !listed.contains(key) {
                let object = Value::Null;
                versions.push(Version {
                    resource_version: String::new(),
                    deleted: true,
                    object,
                });
            }
        }
        drop(state);
        self.changed();
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// When the watch is begun again after a failure. Cases stop API servers, and what they wrote since is to be seen soon after
/// one serves: no wait grows with how long none did.
struct Again;

/// From a failure to the next try.
const AGAIN: Duration = Duration::from_secs(1);

impl Iterator for Again {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(AGAIN)
    }
}

impl Backoff for Again {
    fn reset(&mut self) {}
}

async fn follow(api: Api<DynamicObject>, kind: Kind, seen: Arc<Seen>) {
    let mut events = watcher(api, watcher::Config::default()).backoff(Again).boxed();
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(object)) => seen.version(kind, &object, false),
            Ok(watcher::Event::Delete(object)) => seen.version(kind, &object, true),
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                listed.insert(key(kind, &object));
                seen.version(kind, &object, false);
            }
            Ok(watcher::Event::InitDone) => seen.listed(kind, &listed),
            Err(error) => tracing::warn!("the suite's own watch of {kind:?}: {error}"),
        }
    }
}

fn key(kind: Kind, object: &DynamicObject) -> Key {
    Key::seen(kind, &object.namespace().unwrap_or_default(), &object.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen() -> Seen {
        let folder = tempfile::tempdir().unwrap();
        let history = Arc::new(History::create(folder.path()).unwrap());
        let seen = Seen {
            state: Mutex::default(),
            changes: watch::Sender::new(0),
            history,
        };
        seen.state().namespaces.insert("ns".to_owned());
        seen
    }

    fn slice(namespace: &str, resource_version: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "metadata": { "name": "t", "namespace": namespace, "resourceVersion": resource_version },
            "endpoints": null,
        }))
        .unwrap()
    }

    #[test]
    fn a_deletion_has_been_seen_also_if_the_object_is_there_again() {
        let version = |deleted| Version {
            resource_version: String::new(),
            deleted,
            object: json!(null),
        };
        let [made, gone] = [false, true].map(version);
        let is = |versions: &[&Version], since| {
            let versions: Vec<Version> = versions.iter().copied().cloned().collect();
            was_deleted(&versions, since)
        };
        assert!(!is(&[], 0) && !is(&[&made], 0) && !is(&[&made], 1));
        assert!(is(&[&made, &gone, &made], 1), "it was made again");
        assert!(!is(&[&made, &gone, &made], 3), "that was before");
        assert!(is(&[&made, &gone], 2), "it is gone already");
    }

    fn versions(seen: &Seen) -> Vec<(String, bool)> {
        let state = seen.state();
        let all = state.of(&Key::slice("ns", "t"));
        all.iter()
            .map(|version| (version.resource_version.clone(), version.deleted))
            .collect()
    }

    #[test]
    fn every_version_is_kept_once_and_nulls_stay() {
        let seen = seen();
        for resource_version in ["1", "2", "2", "3"] {
            seen.version(Kind::EndpointSlice, &slice("ns", resource_version), false);
        }
        seen.version(Kind::EndpointSlice, &slice("other", "4"), false);
        let expected = ["1", "2", "3"].map(|version| (version.to_owned(), false));
        assert_eq!(versions(&seen), expected);
        let state = seen.state();
        let object = &state.of(&Key::slice("ns", "t"))[0].object;
        assert_eq!(object.get("endpoints"), Some(&Value::Null));
    }

    #[test]
    fn what_a_new_list_lacks_was_deleted() {
        let seen = seen();
        seen.version(Kind::EndpointSlice, &slice("ns", "1"), false);
        seen.listed(Kind::EndpointSlice, &[Key::slice("ns", "t")].into());
        assert_eq!(versions(&seen), [("1".to_owned(), false)]);
        seen.listed(Kind::Service, &BTreeSet::new());
        assert_eq!(
            versions(&seen),
            [("1".to_owned(), false)],
            "a list of another kind says nothing"
        );
        seen.listed(Kind::EndpointSlice, &BTreeSet::new());
        assert_eq!(versions(&seen).last(), Some(&(String::new(), true)));
    }

    #[test]
    fn ready_addresses_are_those_of_the_last_versions_of_all_slices() {
        let seen = seen();
        let slice = |name: &str, version: &str, endpoints: Value| -> DynamicObject {
            let metadata = json!({
                "name": name, "namespace": "ns", "resourceVersion": version,
                "labels": { "kubernetes.io/service-name": "s" },
            });
            serde_json::from_value(json!({ "metadata": metadata, "endpoints": endpoints })).unwrap()
        };
        let at = |address: &str, ready: Option<bool>| json!({ "addresses": [address], "conditions": { "ready": ready } });
        let ready = |service: &str| -> Vec<String> {
            let ready = seen.state().ready_of(&Key::service("ns", service));
            ready.into_iter().collect()
        };
        let both = json!([at("10.0.0.1", Some(true)), at("10.0.0.2", Some(false))]);
        seen.version(Kind::EndpointSlice, &slice("a", "1", both), false);
        seen.version(
            Kind::EndpointSlice,
            &slice("b", "2", json!([at("10.0.0.3", None)])),
            false,
        );
        assert_eq!(ready("s"), ["10.0.0.1", "10.0.0.3"]);
        assert!(ready("t").is_empty());
        seen.version(Kind::EndpointSlice, &slice("a", "3", json!(null)), false);
        seen.version(Kind::EndpointSlice, &slice("b", "4", json!([])), true);
        assert!(ready("s").is_empty());
    }
}
