//! List and watch of one kind, through all their failures.
//!
//! kube's own watcher streams lists from version 0, which may be older than the last known one, and waits without end for a
//! server that ignores the request to stream.

use std::time::{self, Duration, SystemTime};

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Client,
    api::{ListParams, WatchParams},
    core::WatchEvent,
};
use rand::{Rng as _, rngs::StdRng};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    PAGE, RETRY_FIRST, RETRY_LIMIT, Reflected, STREAM_LIMIT, WATCH_LEAST, WATCH_LIMIT,
    error::{WatchError, broken, not_streamed},
    raw::Raw,
};
use crate::{
    decode::Defect,
    feed::{Closed, EventSender},
    findings::Finding,
    ledger::{Origin, Subject},
    model::{Event, Kind},
    names::ObjectName,
    relist::{Relist, Watched},
    reports::Reports,
};

/// Annotation of the bookmark that ends a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// Annotation of a slice: the time of the change that caused it.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Watches one kind until the queue of events is closed. `random`: keeps the tries of agents apart.
pub async fn reflect<T: Reflected>(client: Client, events: EventSender, reports: Reports, random: StdRng) {
    let closed = events.clone();
    let reflector = Reflector::<T>::new(client, events, reports, random);
    tokio::select! {
        () = closed.closed() => {}
        Closed = reflector.run() => {}
    }
}

/// Whether lists are streamed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Streams {
    Yes,
    /// A stream failed before the end of its list: the server was stopped, or does not stream. One paged list comes first.
    AfterPages,
    /// The server does not stream.
    No,
}

struct Reflector<T> {
    api: Api<Raw>,
    kind: String,
    events: EventSender,
    reports: Reports,
    relist: Relist,
    streams: Streams,
    /// The version at which the next watch begins; `None`: a list comes first.
    version: Option<String>,
    delay: Duration,
    random: StdRng,
    /// Whether the acceptance of a watch counts as an answer: something came since the last one.
    may_count_accepted: bool,
    of: std::marker::PhantomData<fn() -> T>,
}

impl<T: Reflected> Reflector<T> {
    fn new(client: Client, events: EventSender, reports: Reports, random: StdRng) -> Self {
        let resource = T::resource();
        Self {
            api: Api::all_with(client, &resource),
            kind: resource.kind.to_ascii_lowercase(),
            events,
            reports,
            relist: Relist::default(),
            streams: Streams::Yes,
            version: None,
            delay: RETRY_FIRST,
            random,
            may_count_accepted: true,
            of: std::marker::PhantomData,
        }
    }

    async fn run(mut self) -> Closed {
        loop {
            let ended = match &self.version {
                None if self.streams == Streams::Yes => self.stream_list().await,
                None => self.page_list().await,
                Some(version) => {
                    let version = version.clone();
                    self.watch(&version).await
                }
            };
            let ended = match ended {
                Err(error) if T::OPTIONAL && error.is_unknown_kind() => self.unknown_kind().await,
                ended => ended,
            };
            match ended {
                Ok(()) => {}
                Err(WatchError::Closed(closed)) => return closed,
                Err(error) => self.recover(&error).await,
            }
        }
    }

    /// Reports the failure, chooses where to continue, and waits.
    async fn recover(&mut self, error: &WatchError) {
        let kind = self.kind.as_str();
        self.reports
            .metrics
            .watch_restarts
            .at([kind, error.cause()])
            .inc();
        if let WatchError::NotStreamed(why) = error {
            tracing::info!(kind, why, "the API server does not stream lists; taking pages");
            self.streams = Streams::No;
            return;
        }
        self.reports.readiness.watch_failed(T::KIND, error.to_string());
        let list = error.needs_list();
        if list {
            self.version = None;
        }
        let pause = self.delay.mul_f64(self.random.random_range(0.5..=1.0));
        tracing::warn!(kind, %error, ?pause, list, "the watch failed");
        tokio::time::sleep(pause).await;
        self.delay = (self.delay * 2).min(RETRY_LIMIT);
    }

    /// The API server does not know the kind: as an empty list, and a watch without events.
    async fn unknown_kind(&mut self) -> Result<(), WatchError> {
        tracing::debug!(
            kind = self.kind,
            "the API server does not know this kind of object"
        );
        self.version = None;
        self.progressed();
        self.send(Watched::Init, None).await?;
        self.send(Watched::InitDone, None).await?;
        tokio::time::sleep(WATCH_LIMIT).await;
        Ok(())
    }

    /// A streamed list, and the watch after it on the same connection.
    async fn stream_list(&mut self) -> Result<(), WatchError> {
        let parameters = WatchParams {
            send_initial_events: true,
            ..Self::parameters()
        };
        // Without a version, the list is at least as new as the request.
        let stream = match self.api.watch(&parameters, "").await {
            Ok(stream) => stream,
            Err(error) => return Err(not_streamed(error)),
        };
        self.accepted();
        let mut stream = std::pin::pin!(stream);
        self.send(Watched::Init, None).await?;
        loop {
            let next = tokio::time::timeout(STREAM_LIMIT, stream.next()).await;
            match next {
                Err(_) => {
                    self.streams = Streams::AfterPages;
                    return Err(WatchError::Silent(STREAM_LIMIT));
                }
                Ok(None) => {
                    self.streams = Streams::AfterPages;
                    return Err(WatchError::Early);
                }
                Ok(Some(event)) => match event.map_err(broken)? {
                    WatchEvent::Added(object) => self.object(object, Watched::InitApply).await?,
                    WatchEvent::Bookmark(mark)
                        if mark.metadata.annotations.contains_key(INITIAL_EVENTS_END) =>
                    {
                        self.version = Some(mark.metadata.resource_version);
                        break;
                    }
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(status) => return Err(WatchError::Status(status)),
                    WatchEvent::Modified(_) | WatchEvent::Deleted(_) => {
                        let why = "it sent changes before the end of the list";
                        return Err(WatchError::NotStreamed(why.to_owned()));
                    }
                },
            }
        }
        self.listed("streamed").await?;
        self.follow(stream).await
    }

    /// A list in pages.
    async fn page_list(&mut self) -> Result<(), WatchError> {
        let mut parameters = ListParams {
            label_selector: T::selector(),
            limit: Some(PAGE),
            ..ListParams::default()
        };
        self.send(Watched::Init, None).await?;
        loop {
            let page = self.api.list(&parameters).await.map_err(WatchError::Refused)?;
            for object in page.items {
                self.object(object, Watched::InitApply).await?;
            }
            parameters.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if parameters.continue_token.is_none() {
                let version = page
                    .metadata
                    .resource_version
                    .filter(|version| !version.is_empty());
                self.version = Some(version.ok_or(WatchError::NoVersion("the list"))?);
                if self.streams == Streams::AfterPages {
                    self.streams = Streams::Yes;
                }
                return self.listed("paged").await;
            }
        }
    }

    async fn listed(&mut self, manner: &str) -> Result<(), WatchError> {
        self.reports.metrics.lists.at([&self.kind, manner]).inc();
        tracing::info!(kind = self.kind, manner, "listed");
        self.progressed();
        self.send(Watched::InitDone, None).await
    }

    async fn watch(&mut self, version: &str) -> Result<(), WatchError> {
        let stream = self
            .api
            .watch(&Self::parameters(), version)
            .await
            .map_err(WatchError::Refused)?;
        self.accepted();
        self.follow(std::pin::pin!(stream)).await
    }

    /// Events after the list, until the watch ends.
    async fn follow(
        &mut self,
        mut stream: impl Stream<Item = kube::Result<WatchEvent<Raw>>> + Unpin,
    ) -> Result<(), WatchError> {
        // The server ends a watch in time, unless the connection is dead.
        const LIMIT: Duration = WATCH_LIMIT.saturating_add(Duration::from_secs(10));
        let (begin, from) = (Instant::now(), self.version.clone());
        loop {
            let next = tokio::time::timeout(LIMIT, stream.next()).await;
            let Some(event) = next.map_err(|_| WatchError::Silent(LIMIT))? else {
                if begin.elapsed() < WATCH_LEAST && self.version == from {
                    return Err(WatchError::AtOnce);
                }
                self.progressed();
                return Ok(());
            };
            let event = event.map_err(broken)?;
            let version = match &event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                    object.version().map(str::to_owned)
                }
                WatchEvent::Bookmark(mark) => Some(mark.metadata.resource_version.clone()),
                WatchEvent::Error(status) => return Err(WatchError::Status(status.clone())),
            };
            let version = version.ok_or(WatchError::NoVersion("an event"))?;
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.object(object, Watched::Apply).await?;
                }
                WatchEvent::Deleted(object) => self.deletion(&object).await?,
                WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
            }
            // After the event: one that was not passed on comes again.
            self.version = Some(version);
            self.progressed();
        }
    }

    /// The API server has sent something.
    fn progressed(&mut self) {
        self.delay = RETRY_FIRST;
        self.may_count_accepted = true;
        self.reports
            .readiness
            .watch_answered(T::KIND, time::Instant::now());
    }

    /// The API server has accepted a watch, which may be quiet. It counts once: a server that accepts watches, and never
    /// sends an event or an end, is silent.
    fn accepted(&mut self) {
        if std::mem::take(&mut self.may_count_accepted) {
            self.reports
                .readiness
                .watch_answered(T::KIND, time::Instant::now());
        }
    }

    fn parameters() -> WatchParams {
        WatchParams {
            label_selector: T::selector(),
            timeout: WATCH_LIMIT.as_secs().try_into().ok(),
            ..WatchParams::default()
        }
    }

    async fn object(&mut self, raw: Raw, watched: impl FnOnce(T) -> Watched<T>) -> Result<(), WatchError> {
        let decoded = match T::decode(&raw.object) {
            Ok(decoded) => decoded,
            Err(defect) => {
                self.reject(&defect);
                return Ok(());
            }
        };
        let subject = Subject::Object(T::KIND, decoded.object.name());
        let findings = decoded.defects.into_iter().map(Finding::from).collect();
        self.reports.ledger.set(subject, Origin::Read, findings);
        self.send(watched(decoded.object), triggered(&raw.object)).await
    }

    async fn deletion(&mut self, raw: &Raw) -> Result<(), WatchError> {
        match T::name_of(&raw.object) {
            Ok(name) => self.send(Watched::Delete(name), None).await,
            Err(defect) => {
                self.reject(&defect);
                Ok(())
            }
        }
    }

    fn reject(&self, defect: &Defect) {
        tracing::warn!(kind = self.kind, %defect, "an object was left out");
    }

    async fn send(&mut self, watched: Watched<T>, triggered: Option<SystemTime>) -> Result<(), WatchError> {
        let changes = self.relist.take(watched, triggered);
        for subject in changes.iter().filter_map(|change| deleted(&change.event)) {
            self.reports.ledger.set(subject, Origin::Read, Vec::new());
        }
        self.events.send_at_once(changes).await?;
        Ok(())
    }
}

/// The object that an event deletes: its findings are over.
fn deleted(event: &Event) -> Option<Subject> {
    let (kind, name) = match event {
        Event::ServiceDeleted(name) => (Kind::Service, name.clone()),
        Event::SliceDeleted(name) => (Kind::EndpointSlice, name.clone()),
        Event::NodeDeleted(name) => (Kind::Node, ObjectName::new("", name.as_str())),
        Event::ServiceCidrDeleted(name) => (Kind::ServiceCidr, ObjectName::new("", name.as_str())),
        _ => return None,
    };
    Some(Subject::Object(kind, name))
}

/// The time of the change that caused an object's, if the object says.
pub(crate) fn triggered(object: &Value) -> Option<SystemTime> {
    let time = &object["metadata"]["annotations"][TRIGGER_TIME];
    Time::deserialize(time).ok().map(|time| time.0.into())
}
