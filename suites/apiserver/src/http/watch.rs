//! Watch: the state as events if requested, then every change, and bookmarks.

use std::{collections::VecDeque, io, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use futures::Stream;
use hyper::Response;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Api, ObjectRequest,
    query::At,
    read::metadata_only,
    response_form::{self, Form},
};
use crate::{
    faults::{self, Client, Faults, WatchFaults},
    kinds::Kind,
    printers::{self, IncludeObject},
    respond::{self, Body},
    status::Status,
    store::{Event, EventType, Horizon, Listed, Scope, Watch},
};

/// A watch without `timeoutSeconds` lasts half an hour to an hour (`--min-request-timeout` and its jitter).
const SHORTEST: Duration = Duration::from_secs(1800);
/// Initial events that go into one chunk.
const CHUNK: usize = 64;
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

impl Api {
    pub(super) fn watch(&self, request: &ObjectRequest) -> Result<Response<Body>, Status> {
        let scope = request.scope()?;
        let (at, initial) = request.query.watch_at()?;
        let include = response_form::include_object(request.query.get("includeObject"))?;
        let timeout = request
            .query
            .timeout()?
            .unwrap_or_else(|| SHORTEST.mul_f64(rand::random_range(1.0..2.0)));
        // An unset version and "0" begin with the state, unless sendInitialEvents is false.
        let state_first = initial.unwrap_or(matches!(at, At::Newest | At::Any));
        let mut state = VecDeque::new();
        let position = match (state_first, at) {
            (true, at) => {
                let listed = self.state(request, &scope, at)?;
                let added = |object| Event {
                    kind: EventType::Added,
                    object,
                };
                state.extend(listed.objects.into_iter().map(added));
                listed.version
            }
            (false, At::NotOlderThan(version) | At::Exact(version)) => version,
            (false, At::Newest | At::Any) => self.store.version(),
        };
        let now = Instant::now();
        let streaming = Streaming {
            encoder: Encoder {
                kind: request.target.kind,
                form: request.form,
                include,
                first: true,
            },
            state,
            end_of_state: initial == Some(true) && request.query.bookmarks(),
            watch: Watch::new(self.store.clone(), scope, position),
            bookmarks: request
                .query
                .bookmarks()
                .then(|| self.store.config().bookmark_interval),
            next_bookmark: now + self.store.config().bookmark_interval,
            deadline: now + timeout,
            shutdown: self.shutdown.clone(),
            changes: self.faults.changes(),
            faults: self.faults.clone(),
            client: request.client.clone(),
            opened: now,
            lost: false,
            ended: false,
        };
        Ok(respond::stream(chunks(streaming)))
    }

    /// The state that a watch begins with. It is that of a lagging cache if the client accepts any.
    fn state(&self, request: &ObjectRequest, scope: &Scope, at: At) -> Result<Listed, Status> {
        let horizon = self.faults.cache(&request.client);
        if horizon == Horizon::Now || at == At::Newest {
            return Ok(self.store.list(scope));
        }
        let seen = self.store.seen(horizon);
        match at {
            At::NotOlderThan(version) if version > seen => Err(Status::future_version(version, seen)),
            _ => self.store.list_at(scope, seen),
        }
    }
}

/// An open watch. It holds the initial state (shared objects) until that is sent, one batch, and its position, so a slow client
/// costs no memory.
struct Streaming {
    encoder: Encoder,
    state: VecDeque<Event>,
    end_of_state: bool,
    watch: Watch,
    bookmarks: Option<Duration>,
    next_bookmark: Instant,
    deadline: Instant,
    shutdown: CancellationToken,
    faults: Faults,
    /// Changes of the active faults.
    changes: watch::Receiver<u64>,
    client: Client,
    opened: Instant,
    /// A fault has dropped one of its events.
    lost: bool,
    ended: bool,
}

fn chunks(streaming: Streaming) -> impl Stream<Item = io::Result<Bytes>> + Send {
    futures::stream::unfold(streaming, |mut streaming| async move {
        let chunk = streaming.next().await?;
        Some((chunk, streaming))
    })
}

impl Streaming {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        while !self.ended && !self.shutdown.is_cancelled() {
            self.changes.mark_unchanged();
            let met = self.faults.watch(&self.client, self.opened);
            if met.cut.is_some_and(|cut| cut <= Instant::now()) {
                self.ended = true;
                return Some(Err(faults::broken()));
            }
            if !self.state.is_empty() {
                let batch: Vec<Event> = self.state.drain(..CHUNK.min(self.state.len())).collect();
                return Some(Ok(self.encoder.events(&batch)));
            }
            if std::mem::take(&mut self.end_of_state) {
                return Some(Ok(self.encoder.bookmark(self.watch.position(), true)));
            }
            if met.expire || (self.lost && !met.lose) {
                let status = Status::expired(self.watch.position(), self.watch.position() + 1);
                return Some(Ok(self.end(&status)));
            }
            if let Some(chunk) = self.event(&met).await {
                return Some(Ok(chunk));
            }
        }
        None
    }

    /// The next chunk under the current faults; `None` if these must be checked again.
    async fn event(&mut self, met: &WatchFaults) -> Option<Bytes> {
        // After a bookmark, its client would not list the dropped events again.
        let bookmarks = self.bookmarks.filter(|_| !met.lose && !self.lost);
        let cut = async {
            match met.cut {
                Some(cut) => tokio::time::sleep_until(cut).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.shutdown.cancelled() => None,
            _ = self.changes.changed() => None,
            () = cut => None,
            () = tokio::time::sleep_until(self.deadline) => {
                self.ended = true;
                bookmarks.map(|_| self.encoder.bookmark(self.watch.position(), false))
            }
            () = tokio::time::sleep_until(self.next_bookmark), if bookmarks.is_some() => {
                self.next_bookmark = Instant::now() + bookmarks.unwrap_or_default();
                Some(self.encoder.bookmark(self.watch.position(), false))
            }
            events = self.watch.next(met.horizon) => match events {
                Ok(_) if met.lose => {
                    self.lost = true;
                    None
                }
                Ok(events) => Some(self.encoder.events(&events)),
                Err(status) => Some(self.end(&status)),
            },
        }
    }

    fn end(&mut self, status: &Status) -> Bytes {
        self.ended = true;
        line(&json!({"type": "ERROR", "object": status.to_json()}))
    }
}

/// Turns events into lines.
struct Encoder {
    kind: Kind,
    form: Form,
    include: IncludeObject,
    /// Column definitions come with the first table only.
    first: bool,
}

impl Encoder {
    fn events(&mut self, events: &[Event]) -> Bytes {
        let mut text = BytesMut::new();
        for event in events {
            text.put(&br#"{"type":""#[..]);
            text.put(event.kind.as_str().as_bytes());
            text.put(&br#"","object":"#[..]);
            match self.form {
                Form::Object => text.put(event.object.json.clone()),
                Form::Metadata => text.put(metadata_only(&event.object.value).to_string().as_bytes()),
                Form::Table => text.put(self.table(&event.object.value).as_bytes()),
            }
            text.put(&b"}\n"[..]);
        }
        text.freeze()
    }

    fn table(&mut self, object: &Value) -> String {
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let headers = std::mem::take(&mut self.first);
        let rows = std::slice::from_ref(object);
        printers::table(self.kind, rows, version, self.include, headers).to_string()
    }

    fn bookmark(&mut self, version: u64, end_of_state: bool) -> Bytes {
        let info = self.kind.info();
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if end_of_state {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let mut object = json!({"kind": info.kind, "apiVersion": info.api_version(), "metadata": metadata});
        match self.kind {
            Kind::EndpointSlice => {
                object["addressType"] = "".into();
                object["endpoints"] = Value::Null;
                object["ports"] = Value::Null;
            }
            Kind::Lease => object["spec"] = json!({}),
            Kind::ConfigMap | Kind::Event | Kind::Secret | Kind::ServiceAccount => {}
            Kind::Pod => {
                object["spec"] = json!({"containers": null});
                object["status"] = json!({});
            }
            Kind::Namespace | Kind::Node | Kind::ServiceCidr => {
                object["spec"] = json!({});
                object["status"] = json!({});
            }
            Kind::Service => {
                object["spec"] = json!({});
                object["status"] = json!({"loadBalancer": {}});
            }
        }
        let object = match self.form {
            Form::Object => object,
            Form::Metadata => metadata_only(&object),
            Form::Table => {
                let headers = std::mem::take(&mut self.first);
                let mut table = printers::table(self.kind, &[], &version.to_string(), self.include, headers);
                table["metadata"] = object["metadata"].clone();
                table
            }
        };
        line(&json!({"type": "BOOKMARK", "object": object}))
    }
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}
