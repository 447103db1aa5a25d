//! Findings → Kubernetes Events, where `kubectl describe` shows them.
//!
//! The name of an Event is a hash of its contents. The agents of all nodes find the same, so that one posts it and the
//! others get a conflict. (kube's `Recorder` names Events by the time.) API servers delete Events after an hour; findings
//! that last are posted again every [`REPEAT`].
//!
//! Nothing waits for Events: failures are counted, and all findings are in `/findings`.
//!
//! # Bounds
//! [`QUEUE`] new findings wait; [`BURST`] are posted at once, one each [`PAUSE`] after that; [`LASTING`] are repeated.
//! A post may take [`LIMIT`].

use std::{
    hash::{DefaultHasher, Hasher as _},
    time::Duration,
};

use k8s_openapi::{
    api::{
        core::v1::{self, Event, EventSource, ObjectReference},
        discovery::v1::EndpointSlice,
        networking::v1::ServiceCIDR,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ObjectMeta, PostParams},
};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    findings::Reason,
    ledger::{Notice, Subject},
    model::Kind,
    reports::Reports,
};

/// New findings that wait.
pub const QUEUE: usize = 256;
/// Events that are posted without a pause.
pub const BURST: u32 = 25;
/// Pause after each further one.
pub const PAUSE: Duration = Duration::from_secs(1);
/// Time between two repetitions.
pub const REPEAT: Duration = Duration::from_secs(30 * 60);
/// Most findings that are repeated.
pub const LASTING: usize = QUEUE;
/// Time limit for one Event.
pub const LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of a message (events.k8s.io: "Maximal length of the note is 1kB").
const LONGEST: usize = 1024;
/// The Events' source.
const COMPONENT: &str = "plumbline";

/// Posts findings as they come, without end.
pub async fn post(client: Client, node: String, mut notices: mpsc::Receiver<Notice>, reports: Reports) {
    let poster = Poster {
        client,
        node,
        reports,
    };
    let mut repeat = Instant::now() + REPEAT;
    let mut tokens = BURST;
    let mut refill = Instant::now() + PAUSE;
    loop {
        let notice = tokio::select! {
            notice = notices.recv() => match notice {
                Some(notice) => notice,
                None => return,
            },
            () = tokio::time::sleep_until(repeat) => {
                repeat = Instant::now() + REPEAT;
                poster.reports.ledger.repeat(LASTING);
                continue;
            }
        };
        while tokens < BURST && Instant::now() >= refill {
            tokens += 1;
            refill += PAUSE;
        }
        if tokens == 0 {
            tokio::time::sleep_until(refill).await;
            tokens += 1;
        }
        if tokens == BURST {
            refill = Instant::now() + PAUSE;
        }
        tokens -= 1;
        poster.post(notice).await;
    }
}

struct Poster {
    client: Client,
    node: String,
    reports: Reports,
}

impl Poster {
    async fn post(&self, notice: Notice) {
        let subject = notice.subject.to_string();
        let posted = tokio::time::timeout(LIMIT, self.try_post(notice)).await;
        let outcome = match posted {
            Ok(Ok(())) => "posted",
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => "posted",
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return,
            Ok(Err(error)) => {
                tracing::debug!(object = subject, %error, "an Event was not posted");
                "failed"
            }
            Err(_) => {
                tracing::debug!(object = subject, "an Event was not posted in {LIMIT:?}");
                "failed"
            }
        };
        self.reports.metrics.events.at([outcome]).inc();
    }

    async fn try_post(&self, Notice { subject, finding }: Notice) -> kube::Result<()> {
        let Subject::Object(kind, name) = subject else {
            return Ok(());
        };
        let resource = match kind {
            Kind::Service => ApiResource::erase::<v1::Service>(&()),
            Kind::EndpointSlice => ApiResource::erase::<EndpointSlice>(&()),
            Kind::Node => ApiResource::erase::<v1::Node>(&()),
            Kind::ServiceCidr => ApiResource::erase::<ServiceCIDR>(&()),
        };
        let objects: Api<DynamicObject> = match kind.is_namespaced() {
            true => Api::namespaced_with(self.client.clone(), &name.namespace, &resource),
            false => Api::all_with(self.client.clone(), &resource),
        };
        // `kubectl describe` looks for Events by the object's uid.
        let uid = objects.get(&name.name).await?.metadata.uid;
        let namespaced = Some(name.namespace.to_string()).filter(|namespace| !namespace.is_empty());
        // "Events about cluster-scoped objects live in default."
        let namespace = namespaced.clone().unwrap_or_else(|| "default".to_owned());
        let mut message = finding.message;
        if finding.reason == Reason::NotWritten {
            message = format!("on node {}: {message}", self.node);
        }
        shorten(&mut message);
        let reason = finding.reason.to_string();
        let involved_object = ObjectReference {
            api_version: Some(resource.api_version.clone()),
            kind: Some(resource.kind.clone()),
            namespace: namespaced,
            name: Some(name.name.to_string()),
            uid,
            ..ObjectReference::default()
        };
        let now = Some(Time(Timestamp::now()));
        let event = Event {
            metadata: ObjectMeta {
                name: Some(event_name(&involved_object, &reason, &message)),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object,
            reason: Some(reason),
            message: Some(message),
            type_: Some("Warning".to_owned()),
            action: Some("LeftOut".to_owned()),
            count: Some(1),
            first_timestamp: now.clone(),
            last_timestamp: now,
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: Some(self.node.clone()),
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(self.node.clone()),
            ..Event::default()
        };
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        events.create(&PostParams::default(), &event).await?;
        Ok(())
    }
}

/// The same on every node for the same message about the same object.
fn event_name(object: &ObjectReference, reason: &str, message: &str) -> String {
    // Its keys are fixed, so that agents of one build agree.
    let mut hash = DefaultHasher::new();
    for part in [&object.kind, &object.namespace, &object.name, &object.uid]
        .into_iter()
        .flatten()
    {
        hash.write(part.as_bytes());
        hash.write_u8(0xff);
    }
    hash.write(reason.as_bytes());
    hash.write_u8(0xff);
    hash.write(message.as_bytes());
    let name = object.name.as_deref().unwrap_or_default();
    // A name has 253 characters at most.
    let name: String = name.chars().take(200).collect();
    format!("{name}.plumbline.{:016x}", hash.finish())
}

fn shorten(message: &mut String) {
    if message.len() > LONGEST {
        let end = (0..=LONGEST - '…'.len_utf8())
            .rev()
            .find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
        message.push('…');
    }
}
