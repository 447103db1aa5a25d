//! The cluster's state: objects, one version counter, the history of changes.
//!
//! Everything happens under one lock: a change is one version, and no reader sees half of it.
//!
//! Here: reads. `write`: create and update. `bind`: pods get their nodes. `delete`: graceful deletion, finalizers, the end of
//! namespaces. `dependents`: what goes with its owner. `history`, `watch`: what happened. `addresses`: ClusterIPs and node
//! ports. `bootstrap`: what exists from the start. `leases`: which replicas are alive, and `default/kubernetes`. `object`: one version
//! of one object.

mod addresses;
mod bind;
mod bootstrap;
mod delete;
mod dependents;
mod history;
mod leases;
mod object;
mod watch;
mod write;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

pub(crate) use delete::{DeleteOptions, Deleted};
pub(crate) use history::Horizon;
pub use leases::RestingReconciler;
pub(crate) use object::{Key, Object};
pub(crate) use watch::{Event, EventType, Watch};
pub(crate) use write::{WriteOptions, expect_name, now};

use self::{addresses::Addresses, dependents::Dependents, history::History, leases::Leases};
use crate::{
    config::{Config, ConfigError},
    kinds::Kind,
    kubelet::Kubelet,
    selector::Selector,
    status::Status,
};

/// The cluster's state; clones are handles to the same one.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    state: Mutex<State>,
    /// Held during a round of the reconciler, which takes the state's lock several times.
    reconciling: Mutex<()>,
    /// The newest version, which watches wait for.
    head: tokio::sync::watch::Sender<u64>,
    /// Runs the pods.
    kubelet: Mutex<Option<Arc<dyn Kubelet>>>,
}

/// What the lock guards.
pub(crate) struct State {
    objects: BTreeMap<Key, Arc<Object>>,
    version: u64,
    pub(crate) history: History,
    addresses: Addresses,
    leases: Leases,
    dependents: Dependents,
}

/// The objects of a list or a watch.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) kind: Kind,
    /// `None` is all namespaces, or a cluster-scoped kind.
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Selector,
}

impl Scope {
    pub(crate) fn holds(&self, key: &Key) -> bool {
        key.kind == self.kind
            && self
                .namespace
                .as_ref()
                .is_none_or(|namespace| *namespace == key.namespace)
    }

    pub(crate) fn selects(&self, object: &Object) -> bool {
        self.selector.matches(&object.value)
    }
}

/// The objects of a list, and their version.
pub(crate) struct Listed {
    pub(crate) version: u64,
    pub(crate) objects: Vec<Arc<Object>>,
}

impl Store {
    /// A new cluster: namespaces `default`, `kube-system`, `kube-public`, and `default/kubernetes` with its
    /// EndpointSlice.
    ///
    /// # Errors
    /// If the configuration can't work.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let state = State {
            objects: BTreeMap::new(),
            version: 0,
            history: History::new(0, config.history_events, config.history_bytes),
            addresses: Addresses::new(&config),
            leases: Leases::default(),
            dependents: Dependents::default(),
        };
        let head = tokio::sync::watch::Sender::new(0);
        let store = Self {
            shared: Arc::new(Shared {
                config,
                state: Mutex::new(state),
                reconciling: Mutex::new(()),
                head,
                kubelet: Mutex::new(None),
            }),
        };
        bootstrap::run(&store)?;
        Ok(store)
    }

    /// Its settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Sets the program that runs the cluster's pods, for logs, programs and ports.
    ///
    /// Before, such requests fail as if no node could be reached.
    pub fn set_kubelet(&self, kubelet: Arc<dyn Kubelet>) {
        *self.shared.kubelet.lock().expect("no holder of this lock panics") = Some(kubelet);
    }

    pub(crate) fn kubelet(&self) -> Option<Arc<dyn Kubelet>> {
        let kubelet = self.shared.kubelet.lock().expect("no holder of this lock panics");
        kubelet.clone()
    }

    /// Drops the history, as etcd's compaction does: watches and lists at an earlier version get 410.
    ///
    /// Watches that have read everything continue.
    pub fn compact(&self) {
        let mut state = self.lock();
        let version = state.version;
        state.history.compact(version);
    }

    /// The newest resourceVersion.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// Lets the resourceVersion jump ahead, as when others write much to the same etcd. No watch loses an event; bookmarks
    /// follow.
    pub fn jump_versions(&self, by: u32) {
        let mut state = self.lock();
        state.version += u64::from(by);
        self.publish(&state);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while writing may have left half a change; nothing may be served from that.
        self.shared.state.lock().expect("no writer has panicked")
    }

    pub(crate) fn head(&self) -> tokio::sync::watch::Receiver<u64> {
        self.shared.head.subscribe()
    }

    /// Wakes the watches. Called after each write.
    fn publish(&self, state: &State) {
        self.shared.head.send_replace(state.version);
    }

    pub(crate) fn get(&self, key: &Key) -> Result<Arc<Object>, Status> {
        self.lock().get(key).cloned()
    }

    /// The newest state of what a scope selects.
    pub(crate) fn list(&self, scope: &Scope) -> Listed {
        let state = self.lock();
        Listed {
            version: state.version,
            objects: state.select(scope).cloned().collect(),
        }
    }

    /// The newest version within a horizon.
    pub(crate) fn seen(&self, horizon: Horizon) -> u64 {
        let state = self.lock();
        state.history.seen(horizon, state.version)
    }

    /// The state at exactly this version.
    ///
    /// # Errors
    /// 410 if the history does not reach back so far.
    pub(crate) fn list_at(&self, scope: &Scope, version: u64) -> Result<Listed, Status> {
        let state = self.lock();
        let whole = Scope {
            selector: Selector::default(),
            ..scope.clone()
        };
        let mut objects: BTreeMap<Key, Arc<Object>> = state
            .range(&whole)
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        let changes = state
            .history
            .after(version)
            .map_err(|gone| Status::expired(version, gone.floor))?;
        for change in changes.rev().filter(|change| whole.holds(&change.key)) {
            match &change.old {
                Some(old) => drop(objects.insert(change.key.clone(), Arc::clone(old))),
                None => drop(objects.remove(&change.key)),
            }
        }
        let objects = objects
            .into_values()
            .filter(|object| scope.selects(object))
            .collect();
        Ok(Listed { version, objects })
    }
}

impl State {
    fn get(&self, key: &Key) -> Result<&Arc<Object>, Status> {
        let info = key.kind.info();
        self.objects
            .get(key)
            .ok_or_else(|| Status::not_found(info.group, info.plural, &key.name))
    }

    fn range(&self, scope: &Scope) -> impl Iterator<Item = (&Key, &Arc<Object>)> {
        let namespace = scope.namespace.clone().unwrap_or_default();
        let start = Key {
            kind: scope.kind,
            namespace,
            name: String::new(),
        };
        self.objects
            .range(start..)
            .take_while(|(key, _)| scope.holds(key))
    }

    fn select(&self, scope: &Scope) -> impl Iterator<Item = &Arc<Object>> {
        self.range(scope)
            .map(|(_, object)| object)
            .filter(|object| scope.selects(object))
    }
}
