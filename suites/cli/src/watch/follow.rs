//! Follows one kind: lists, watches, and lists again after a gap, until the receiver is closed.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use futures::TryStreamExt as _;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams},
};
use serde_json::Value;
use tokio::sync::mpsc::Sender;

use super::changes::changes;
use crate::plural::seconds;

/// First interval between tries while the API does not answer, and the longest; each is twice the one before.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(8);

/// Limits of an API server's answers: a server that lost its connection silently never answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Limit until a list is answered, or a watch begins to be answered.
    pub(super) answer: Duration,
    /// Requested duration of a watch in seconds; the server may end it earlier.
    pub(super) watch_seconds: u32,
    /// Grace period after that for an event or the end of the watch.
    pub(super) slack: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            // kube's own limit for connections.
            answer: Duration::from_secs(30),
            // Clients of Kubernetes request 5 to 10 min.
            watch_seconds: 290,
            slack: Duration::from_secs(30),
        }
    }
}

/// An event of a followed kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ObservedEvent {
    pub(super) kind: &'static str,
    pub(super) what: EventKind,
    /// Name of the object; empty if the event is about none.
    pub(super) name: String,
    /// resourceVersion of the object or of the list.
    pub(super) resource_version: String,
    /// The changes as text.
    pub(super) changes: Vec<String>,
    /// The object as it was sent.
    pub(super) object: Value,
}

/// The kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EventKind {
    /// The first list contains an object.
    Listed,
    /// A watch event.
    Added,
    /// A watch event.
    Modified,
    /// A watch event.
    Deleted,
    /// A list after a gap shows a change without a watch event: it may be several changes at once.
    MissedChange,
    /// A list is complete; `changes` has the number of its objects.
    ListEnds,
    /// The watch has ended, and continues at the same version: nothing is missed.
    WatchEnds,
    /// 410 Gone: the version is too old, and everything is listed again.
    Expired,
    /// A request to the API has failed, and is tried again.
    Trouble,
}

/// A kind to follow.
pub(super) struct Followed {
    pub(super) kind: &'static str,
    pub(super) resource: ApiResource,
    pub(super) namespace: String,
    /// A field or label selector.
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
}

/// Why following continues with a list.
enum Gap {
    Expired(String),
    Trouble(kube::Error),
    /// The server did not do this within this time.
    Silent(&'static str, Duration),
}

/// Follows one kind until the receiver is closed.
///
/// # Errors
/// The account may not list it (401, 403), or the kind does not exist (404).
pub(super) async fn follow(
    client: Client,
    followed: Followed,
    patience: Patience,
    seen: Sender<ObservedEvent>,
) -> anyhow::Result<()> {
    let api: Api<DynamicObject> = Api::namespaced_with(client, &followed.namespace, &followed.resource);
    let mut following = Following {
        api,
        known: BTreeMap::new(),
        has_listed: false,
        followed,
        patience,
        seen,
        wait: FIRST_WAIT,
    };
    while !following.seen.is_closed() {
        let gap = match following.list().await {
            Ok(version) => following.watch(version).await,
            Err(Gap::Trouble(kube::Error::Api(status))) if [401, 403, 404].contains(&status.code) => {
                anyhow::bail!(
                    "{}s can't be listed in {}: {}",
                    following.followed.kind,
                    following.followed.namespace,
                    status.message
                );
            }
            Err(gap) => Err(gap),
        };
        match gap {
            // The receiver is closed.
            Ok(()) => return Ok(()),
            Err(Gap::Expired(why)) => {
                following
                    .tell(
                        EventKind::Expired,
                        vec![format!("410: {why}; all is listed again")],
                    )
                    .await;
            }
            Err(Gap::Trouble(error)) => following.rest(&error).await,
            Err(Gap::Silent(what, limit)) => {
                let why = format!("it {what} within {}; all is listed again", seconds(limit));
                following.rest(&why).await;
            }
        }
    }
    Ok(())
}

struct Following {
    api: Api<DynamicObject>,
    /// Objects by name, in their last state.
    known: BTreeMap<String, Value>,
    has_listed: bool,
    followed: Followed,
    patience: Patience,
    seen: Sender<ObservedEvent>,
    wait: Duration,
}

impl Following {
    /// Lists everything and sends what is new; returns the version to watch from.
    async fn list(&mut self) -> Result<String, Gap> {
        let params = ListParams {
            label_selector: self.followed.labels.clone(),
            field_selector: self.followed.fields.clone(),
            ..ListParams::default()
        };
        let list = within(
            self.patience.answer,
            "did not answer a list",
            self.api.list(&params),
        )
        .await?
        .map_err(Gap::Trouble)?;
        self.wait = FIRST_WAIT;
        let version = list.metadata.resource_version.unwrap_or_default();
        let what = if self.has_listed {
            EventKind::MissedChange
        } else {
            EventKind::Listed
        };
        self.has_listed = true;
        let now: BTreeMap<String, Value> = list.items.into_iter().map(named).collect();
        let count = now.len();
        let before = std::mem::take(&mut self.known);
        for (name, was) in &before {
            if !now.contains_key(name) {
                self.object(what, name, was, changes(Some(was), None)).await;
            }
        }
        for (name, object) in &now {
            let found = changes(before.get(name), Some(object));
            if !found.is_empty() {
                self.object(what, name, object, found).await;
            }
        }
        self.known = now;
        let text = format!("listed: {}", crate::plural::counted(count, "object", "objects"));
        let seen = ObservedEvent {
            resource_version: version.clone(),
            ..self.about(EventKind::ListEnds, vec![text])
        };
        self.send(seen).await;
        Ok(version)
    }

    /// Watches from a version, again and again, until the receiver is closed.
    async fn watch(&mut self, mut version: String) -> Result<(), Gap> {
        let params = WatchParams {
            label_selector: self.followed.labels.clone(),
            field_selector: self.followed.fields.clone(),
            timeout: Some(self.patience.watch_seconds),
            bookmarks: true,
            send_initial_events: false,
        };
        while !self.seen.is_closed() {
            let opened = self.api.watch(&params, &version);
            let events = match within(self.patience.answer, "did not answer a watch", opened).await? {
                Ok(events) => events,
                Err(kube::Error::Api(status)) if status.code == 410 => {
                    return Err(Gap::Expired(status.message.clone()));
                }
                Err(error) => {
                    self.rest(&error).await;
                    continue;
                }
            };
            let mut events = Box::pin(events);
            let silent = Duration::from_secs(self.patience.watch_seconds.into()) + self.patience.slack;
            loop {
                let what = "neither said anything on a watch nor ended it";
                match within(silent, what, events.try_next()).await? {
                    Ok(Some(event)) => {
                        self.wait = FIRST_WAIT;
                        self.event(event, &mut version).await?;
                    }
                    Ok(None) => {
                        self.tell(
                            EventKind::WatchEnds,
                            vec![format!("the watch has ended, and goes on from version {version}")],
                        )
                        .await;
                        break;
                    }
                    Err(error) => {
                        let why = format!("the watch broke, and goes on from version {version}: {error}");
                        self.tell(EventKind::WatchEnds, vec![why]).await;
                        break;
                    }
                }
                if self.seen.is_closed() {
                    return Ok(());
                }
            }
            // Limits the rate of requests if the server ends every watch at once.
            tokio::time::sleep(self.wait).await;
        }
        Ok(())
    }

    async fn event(&mut self, event: WatchEvent<DynamicObject>, version: &mut String) -> Result<(), Gap> {
        let (what, object) = match event {
            WatchEvent::Added(object) => (EventKind::Added, object),
            WatchEvent::Modified(object) => (EventKind::Modified, object),
            WatchEvent::Deleted(object) => (EventKind::Deleted, object),
            WatchEvent::Bookmark(bookmark) => {
                *version = bookmark.metadata.resource_version;
                return Ok(());
            }
            WatchEvent::Error(status) if status.code == 410 => {
                return Err(Gap::Expired(status.message.clone()));
            }
            WatchEvent::Error(status) => return Err(Gap::Trouble(kube::Error::Api(status))),
        };
        let (name, object) = named(object);
        *version = version_of(&object);
        let before = self.known.remove(&name);
        let found = match what {
            EventKind::Deleted => changes(before.as_ref().or(Some(&object)), None),
            _ => changes(before.as_ref(), Some(&object)),
        };
        self.object(what, &name, &object, found).await;
        if what != EventKind::Deleted {
            self.known.insert(name, object);
        }
        Ok(())
    }

    async fn rest(&mut self, error: &impl Display) {
        let text = format!("the API can't be asked, again in {}: {error}", seconds(self.wait));
        self.tell(EventKind::Trouble, vec![text]).await;
        tokio::select! {
            () = tokio::time::sleep(self.wait) => {}
            () = self.seen.closed() => {}
        }
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }

    async fn object(&self, what: EventKind, name: &str, object: &Value, mut changes: Vec<String>) {
        if changes.is_empty() {
            changes.push("was written, and is the same".to_owned());
        }
        let seen = ObservedEvent {
            name: name.to_owned(),
            resource_version: version_of(object),
            object: object.clone(),
            ..self.about(what, changes)
        };
        self.send(seen).await;
    }

    async fn tell(&self, what: EventKind, changes: Vec<String>) {
        self.send(self.about(what, changes)).await;
    }

    fn about(&self, what: EventKind, changes: Vec<String>) -> ObservedEvent {
        ObservedEvent {
            kind: self.followed.kind,
            what,
            name: String::new(),
            resource_version: String::new(),
            changes,
            object: Value::Null,
        }
    }

    /// A closed receiver ends the following.
    async fn send(&self, seen: ObservedEvent) {
        drop(self.seen.send(seen).await);
    }
}

/// The server's answer within the limit, or a gap.
async fn within<T>(limit: Duration, what: &'static str, doing: impl Future<Output = T>) -> Result<T, Gap> {
    let done = tokio::time::timeout(limit, doing).await;
    done.map_err(|_| Gap::Silent(what, limit))
}

fn named(object: DynamicObject) -> (String, Value) {
    let name = object.metadata.name.clone().unwrap_or_default();
    (name, serde_json::to_value(object).unwrap_or_default())
}

fn version_of(object: &Value) -> String {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
