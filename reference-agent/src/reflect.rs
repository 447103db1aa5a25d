//! Watches of the API → events.
//!
//! An object is taken from the wire as JSON, whatever is in it, and decoded part by part ([`crate::decode`]): one
//! that is malformed costs its own malformed parts, never the watch, the list, or another object. Only a line
//! that is no JSON at all can't be told; then the watch is started again with a list, since an event may be
//! lost.
//!
//! # Bounds
//! [`RETRY_LIMIT`] between tries, [`WATCH_LIMIT`] for one watch, [`READ_LIMIT`] for an API server that says
//! nothing, [`EVENTS`](crate::agent::EVENTS) in the queue to the control loop, which slows the watches down when it
//! is full.

use std::{fmt, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::{core::v1, discovery::v1 as discovery};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, ObjectMeta},
    core::DynamicResourceScope,
    runtime::watcher,
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{
    agent::{EventSender, Feed},
    decode::{self, Decoded, Defect},
    model::{Event, Host, Node, Service, Slice},
    names::ObjectName,
    relist::{Object, Relist, Watched},
};

/// Delay after the first error of a watch.
pub const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest delay between two tries. Each is up to twice the one before; a random half keeps agents apart.
pub const RETRY_LIMIT: Duration = Duration::from_secs(5);
/// The API server ends each watch after this time; the next one goes on from there.
pub const WATCH_LIMIT: Duration = Duration::from_secs(60);
/// A connection on which nothing arrives for this long is given up. Longer than [`WATCH_LIMIT`]: a quiet watch
/// is none.
pub const READ_LIMIT: Duration = Duration::from_secs(75);
/// A connection that is not accepted in this time is given up.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// What can be reflected.
pub trait Reflected: Object + Sized + Send + 'static {
    /// Where the API has it.
    fn resource() -> ApiResource;
    /// Reads the name of one object.
    ///
    /// # Errors
    /// It has none.
    fn name_of(object: &Value) -> Result<ObjectName, Defect> {
        decode::name(object)
    }
    /// Reads one object.
    ///
    /// # Errors
    /// It has no name.
    fn decode(object: &Value) -> Result<Decoded<Self>, Defect>;
}

impl Reflected for Service {
    fn resource() -> ApiResource {
        ApiResource::erase::<v1::Service>(&())
    }

    fn decode(object: &Value) -> Result<Decoded<Self>, Defect> {
        decode::service(object)
    }
}

impl Reflected for Slice {
    fn resource() -> ApiResource {
        ApiResource::erase::<discovery::EndpointSlice>(&())
    }

    fn decode(object: &Value) -> Result<Decoded<Self>, Defect> {
        decode::slice(object)
    }
}

impl Reflected for Node {
    fn resource() -> ApiResource {
        ApiResource::erase::<v1::Node>(&())
    }

    fn name_of(object: &Value) -> Result<ObjectName, Defect> {
        decode::node_name(object)
    }

    fn decode(object: &Value) -> Result<Decoded<Self>, Defect> {
        decode::node(object)
    }
}

/// A client whose every wait ends.
///
/// # Errors
/// The configuration can't be used, such as a certificate that is none.
pub fn client(mut config: kube::Config) -> Result<Client, kube::Error> {
    // Which TLS provider is used must not depend on what else is compiled in. Chosen already is as good.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    config.connect_timeout = Some(CONNECT_LIMIT);
    config.read_timeout = Some(READ_LIMIT);
    config.reset_reader_on_write = true;
    Client::try_from(config)
}

/// Watches all kinds, and describes this machine as one without addresses.
pub fn feeds(client: &Client) -> Vec<Feed> {
    let (services, slices, nodes) = (client.clone(), client.clone(), client.clone());
    vec![
        Feed::new(|events| reflect::<Service>(services, events)),
        Feed::new(|events| reflect::<Slice>(slices, events)),
        Feed::new(|events| reflect::<Node>(nodes, events)),
        Feed::new(|events: EventSender| async move {
            // Fails only where nobody listens any more.
            _ = events.send(Event::Host(Host::default())).await;
        }),
    ]
}

/// Watches one kind until nobody listens.
pub async fn reflect<T: Reflected>(client: Client, events: EventSender) {
    let resource = T::resource();
    let kind = resource.kind.as_str();
    let api: Api<Raw> = Api::all_with(client, &resource);
    let mut relist = Relist::default();
    let mut delay = RETRY_FIRST;
    loop {
        let config = watcher::Config::default().timeout(WATCH_LIMIT.as_secs().try_into().unwrap_or(u32::MAX));
        let mut watch = watcher(api.clone(), config).boxed();
        loop {
            let item = tokio::select! {
                () = events.closed() => return,
                item = watch.next() => item,
            };
            match item {
                Some(Ok(event)) => {
                    // The beginning of a list is no success yet: it comes before the request.
                    if !matches!(event, watcher::Event::Init) {
                        delay = RETRY_FIRST;
                    }
                    for event in told::<T>(event)
                        .map(|watched| relist.take(watched))
                        .into_iter()
                        .flatten()
                    {
                        if events.send(event).await.is_err() {
                            return;
                        }
                    }
                }
                Some(Err(error)) => {
                    let pause = delay.mul_f64(rand::random_range(0.5..=1.0));
                    let unreadable = is_unreadable(&error);
                    tracing::warn!(
                        kind,
                        error = chain(&error),
                        ?pause,
                        unreadable,
                        "the watch failed"
                    );
                    tokio::select! {
                        () = events.closed() => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                    delay = (delay * 2).min(RETRY_LIMIT);
                    if unreadable {
                        break;
                    }
                }
                None => break,
            }
        }
    }
}

/// What the watch delivered, in the model's types; `None`: it can't be told from others, and was named in the log.
fn told<T: Reflected>(event: watcher::Event<Raw>) -> Option<Watched<T>> {
    let whole = |raw: Raw| {
        let decoded = T::decode(&raw.object)
            .map_err(|defect| reject::<T>(&defect))
            .ok()?;
        report(&decoded);
        Some(decoded.object)
    };
    match event {
        watcher::Event::Init => Some(Watched::Init),
        watcher::Event::InitApply(raw) => whole(raw).map(Watched::InitApply),
        watcher::Event::InitDone => {
            tracing::info!(kind = ?T::KIND, "listed");
            Some(Watched::InitDone)
        }
        watcher::Event::Apply(raw) => whole(raw).map(Watched::Apply),
        watcher::Event::Delete(raw) => {
            let name = T::name_of(&raw.object)
                .map_err(|defect| reject::<T>(&defect))
                .ok()?;
            Some(Watched::Delete(name))
        }
    }
}

fn reject<T: Object>(defect: &Defect) {
    tracing::warn!(kind = ?T::KIND, %defect, "an object was left out");
}

/// One line for each object, whatever is wrong with it: a slice has up to a thousand endpoints.
fn report<T: Object>(decoded: &Decoded<T>) {
    if let Some(first) = decoded.defects.first() {
        let (name, defects) = (decoded.object.name(), decoded.defects.len());
        tracing::warn!(kind = ?T::KIND, object = %name, defects, %first, "parts of an object were left out");
    }
}

/// The watcher goes on behind a line that it can't read, and the event in it is lost.
fn is_unreadable(error: &watcher::Error) -> bool {
    matches!(
        error,
        watcher::Error::WatchFailed(kube::Error::SerdeError(_) | kube::Error::ReadEvents(_))
    )
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some of kube's errors repeat their source.
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// Any object, as it came. Reading it fails only where the JSON itself is broken.
#[derive(Clone)]
struct Raw {
    metadata: ObjectMeta,
    object: Value,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(deserializer)?;
        // Often the larger half of an object, and of no use here.
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let resource_version = object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            resource_version,
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, object })
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}

impl Resource for Raw {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> std::borrow::Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> std::borrow::Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> std::borrow::Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> std::borrow::Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
