//! One kind followed: listed, watched, listed again after a gap, for as long as anybody looks.

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

/// Between two tries while the API does not answer: the first wait, doubled with each until the longest.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(8);

/// How long an API server is waited for: one that has gone without a word answers nothing for ever.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Until it answers a list, or begins to answer a watch.
    pub(super) answer: Duration,
    /// How long a watch is asked to last, in seconds; the server may end it earlier.
    pub(super) watch_seconds: u32,
    /// How much later than that a watch may say something or end.
    pub(super) slack: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            // As kube's own limit for a connection.
            answer: Duration::from_secs(30),
            // Upstream's clients ask for 5 to 10 min.
            watch_seconds: 290,
            slack: Duration::from_secs(30),
        }
    }
}

/// Something that was seen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) kind: &'static str,
    pub(super) what: What,
    /// Name of the object; empty if it is about none.
    pub(super) name: String,
    /// Of the object, or of the list.
    pub(super) resource_version: String,
    /// In words.
    pub(super) changes: Vec<String>,
    /// As it was sent.
    pub(super) object: Value,
}

/// What kind of sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum What {
    /// The first list has an object.
    Listed,
    /// By the watch.
    Added,
    /// By the watch.
    Modified,
    /// By the watch.
    Deleted,
    /// A list after a gap shows that something has happened that no watch had told: it may be more than one thing.
    MissedChange,
    /// A list is complete; `changes` says how many objects it has.
    ListEnds,
    /// The watch has ended, and goes on at the same version: nothing is missed.
    WatchEnds,
    /// 410 Gone: the version is too old, and all is listed again.
    Expired,
    /// The API can't be asked; it is tried again.
    Trouble,
}

/// What is followed.
pub(super) struct Followed {
    pub(super) kind: &'static str,
    pub(super) resource: ApiResource,
    pub(super) namespace: String,
    /// As a field or a label selector.
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
}

/// Why a following goes on with a list.
enum Gap {
    Expired(String),
    Trouble(kube::Error),
    /// It did not do this within this time.
    Silent(&'static str, Duration),
}

/// Follows one kind until nobody listens.
///
/// # Errors
/// The API says that this may not be listed (401, 403) or that there is no such kind (404).
pub(super) async fn follow(
    client: Client,
    followed: Followed,
    patience: Patience,
    seen: Sender<Seen>,
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
            // Nobody listens.
            Ok(()) => return Ok(()),
            Err(Gap::Expired(why)) => {
                following
                    .tell(What::Expired, vec![format!("410: {why}; all is listed again")])
                    .await;
            }
            Err(Gap::Trouble(error)) => following.rest(&error).await,
            Err(Gap::Silent(what, limit)) => {
                let why = format!("it {what} within {limit:?}; all is listed again");
                following.rest(&why).await;
            }
        }
    }
    Ok(())
}

struct Following {
    api: Api<DynamicObject>,
    /// Objects by name, as they were last seen.
    known: BTreeMap<String, Value>,
    has_listed: bool,
    followed: Followed,
    patience: Patience,
    seen: Sender<Seen>,
    wait: Duration,
}

impl Following {
    /// Lists everything and tells what is new; the version to watch from.
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
            What::MissedChange
        } else {
            What::Listed
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
        let text = format!("listed: {}", crate::count::counted(count, "object", "objects"));
        let seen = Seen {
            resource_version: version.clone(),
            ..self.about(What::ListEnds, vec![text])
        };
        self.send(seen).await;
        Ok(version)
    }

    /// Watches from a version on, again and again; ends when nobody listens.
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
                            What::WatchEnds,
                            vec![format!("the watch has ended, and goes on from version {version}")],
                        )
                        .await;
                        break;
                    }
                    Err(error) => {
                        let why = format!("the watch broke, and goes on from version {version}: {error}");
                        self.tell(What::WatchEnds, vec![why]).await;
                        break;
                    }
                }
                if self.seen.is_closed() {
                    return Ok(());
                }
            }
            // A server that ends every watch at once is not asked as fast as it answers.
            tokio::time::sleep(self.wait).await;
        }
        Ok(())
    }

    async fn event(&mut self, event: WatchEvent<DynamicObject>, version: &mut String) -> Result<(), Gap> {
        let (what, object) = match event {
            WatchEvent::Added(object) => (What::Added, object),
            WatchEvent::Modified(object) => (What::Modified, object),
            WatchEvent::Deleted(object) => (What::Deleted, object),
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
            What::Deleted => changes(before.as_ref().or(Some(&object)), None),
            _ => changes(before.as_ref(), Some(&object)),
        };
        self.object(what, &name, &object, found).await;
        if what != What::Deleted {
            self.known.insert(name, object);
        }
        Ok(())
    }

    async fn rest(&mut self, error: &impl Display) {
        let text = format!("the API can't be asked, again in {:?}: {error}", self.wait);
        self.tell(What::Trouble, vec![text]).await;
        tokio::select! {
            () = tokio::time::sleep(self.wait) => {}
            () = self.seen.closed() => {}
        }
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }

    async fn object(&self, what: What, name: &str, object: &Value, mut changes: Vec<String>) {
        if changes.is_empty() {
            changes.push("was written, and is the same".to_owned());
        }
        let seen = Seen {
            name: name.to_owned(),
            resource_version: version_of(object),
            object: object.clone(),
            ..self.about(what, changes)
        };
        self.send(seen).await;
    }

    async fn tell(&self, what: What, changes: Vec<String>) {
        self.send(self.about(what, changes)).await;
    }

    fn about(&self, what: What, changes: Vec<String>) -> Seen {
        Seen {
            kind: self.followed.kind,
            what,
            name: String::new(),
            resource_version: String::new(),
            changes,
            object: Value::Null,
        }
    }

    /// Who does not listen any more ends the following.
    async fn send(&self, seen: Seen) {
        drop(self.seen.send(seen).await);
    }
}

/// What an API server does, or that it did not.
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
