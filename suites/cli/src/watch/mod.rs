//! `plumbline watch`: every event of a Service and its EndpointSlices, with its changes.
//!
//! `follow.rs`: lists and watches. `changes.rs`: differences as text.
mod changes;
mod follow;

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use harness::history::now_us;
use jiff::{SignedDuration, Timestamp};
use kube::api::ApiResource;
use serde_json::{Value, json};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
};

use self::follow::{EventKind, Followed, ObservedEvent, Patience, follow};
use crate::cluster::ConnectionArgs;

/// Limit of unwritten events; a slower reader delays the watches, and loses none.
const QUEUE: usize = 1024;

/// Show every event of a Service and its EndpointSlices, with its changes.
///
/// Works with any kubeconfig until Ctrl-C, through ended watches, 410 Gone and absences of the API. It only reads.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
  plumbline watch default/kubernetes
  plumbline watch shop/cart --json >> cart.jsonl          one line for each event, with the object
  plumbline watch shop/cart --kubeconfig admin.conf --context prod --for 1h

Events: listed, added, modified, deleted; missed-change (a list after a gap shows it: it may be more than one); list-ends,
watch-ends, expired (410), trouble. Exit code 0 at the end of --for or after Ctrl-C, 2 if it may not look.")]
pub(crate) struct Arguments {
    /// The Service; it need not exist yet
    #[arg(value_name = "NAMESPACE/SERVICE", value_parser = service)]
    service: Service,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Print a line of JSON for each event
    #[arg(long)]
    json: bool,
    /// Duration, such as 30s or 2h
    #[arg(long = "for", value_name = "DURATION")]
    lasts: Option<SignedDuration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Service {
    namespace: String,
    name: String,
}

fn service(text: &str) -> Result<Service, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(Service {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        }
        _ => Err(format!("expected NAMESPACE/SERVICE, found '{text}'")),
    }
}

pub(crate) async fn watch(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let client = arguments.connection.clone().connection().client().await?;
    let (seen, mut events) = mpsc::channel(QUEUE);
    let mut tasks = JoinSet::new();
    for followed in followed(&arguments.service) {
        let patience = Patience::default();
        tasks.spawn(follow(client.clone(), followed, patience, seen.clone()));
    }
    drop(seen);
    let lasts = arguments.lasts.map(Duration::try_from).transpose();
    let lasts = lasts.context("expected a duration that is not negative with --for")?;
    let end = async {
        let over = async {
            match lasts {
                Some(lasts) => tokio::time::sleep(lasts).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = over => {}
        }
    };
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => return Ok(ExitCode::SUCCESS),
            Some(ended) = tasks.join_next() => ended??,
            event = events.recv() => {
                let Some(event) = event else {
                    // All tasks end, by an error: either may be the first.
                    while let Some(ended) = tasks.join_next().await {
                        ended??;
                    }
                    return Ok(ExitCode::SUCCESS);
                };
                let text = if arguments.json { line(&event, &arguments.service) } else { words(&event, &arguments.service) };
                let mut out = io::stdout().lock();
                // The reader has closed the pipe.
                if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
    }
}

fn followed(service: &Service) -> [Followed; 2] {
    let resource = |group: &str, kind: &str, plural: &str| ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version: if group.is_empty() {
            "v1".to_owned()
        } else {
            format!("{group}/v1")
        },
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    [
        Followed {
            kind: "Service",
            resource: resource("", "Service", "services"),
            namespace: service.namespace.clone(),
            labels: None,
            fields: Some(format!("metadata.name={}", service.name)),
        },
        Followed {
            kind: "EndpointSlice",
            resource: resource("discovery.k8s.io", "EndpointSlice", "endpointslices"),
            namespace: service.namespace.clone(),
            labels: Some(format!("kubernetes.io/service-name={}", service.name)),
            fields: None,
        },
    ]
}

/// Text for the terminal: time, event, and a line for each change.
fn words(seen: &ObservedEvent, service: &Service) -> String {
    let now = Timestamp::now().strftime("%H:%M:%S%.3f");
    let name = if seen.name.is_empty() {
        format!("of {}", service.name)
    } else {
        seen.name.clone()
    };
    let version = match seen.resource_version.as_str() {
        "" => String::new(),
        version => format!(", version {version}"),
    };
    let mark = match seen.what {
        EventKind::MissedChange => " (missed by the watch)",
        EventKind::Expired | EventKind::Trouble => " (!)",
        _ => "",
    };
    let mut text = format!("{now} {} {name}{version}{mark}", seen.kind);
    for change in &seen.changes {
        text += &format!("\n             {change}");
    }
    text
}

/// A line of JSON; time as in histories of cases: microseconds since the Unix epoch.
fn line(seen: &ObservedEvent, service: &Service) -> String {
    let object: Value = json!({
        "time_us": now_us(),
        "event": seen.what,
        "kind": seen.kind,
        "namespace": service.namespace,
        "name": seen.name,
        "resource_version": seen.resource_version,
        "changes": seen.changes,
        "object": seen.object,
    });
    object.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_with_its_namespace() {
        let expected = Service {
            namespace: "default".into(),
            name: "kubernetes".into(),
        };
        assert_eq!(service("default/kubernetes"), Ok(expected));
        for wrong in ["kubernetes", "/kubernetes", "default/", "a/b/c"] {
            assert!(
                service(wrong).unwrap_err().contains("NAMESPACE/SERVICE"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn what_was_missed_says_so() {
        let seen = ObservedEvent {
            kind: "EndpointSlice",
            what: EventKind::MissedChange,
            name: "t-1".into(),
            resource_version: "7".into(),
            changes: vec!["endpoint 10.0.0.1 is gone".into(), "endpoints is null".into()],
            object: Value::Null,
        };
        let of = service("default/t").unwrap();
        let text = words(&seen, &of);
        let (_, rest) = text.split_once(' ').unwrap();
        assert_eq!(
            rest,
            "EndpointSlice t-1, version 7 (missed by the watch)\n             endpoint 10.0.0.1 is gone\n             \
             endpoints is null"
        );
        let parsed: Value = serde_json::from_str(&line(&seen, &of)).unwrap();
        assert_eq!(
            (&parsed["event"], &parsed["namespace"]),
            (&json!("missed-change"), &json!("default"))
        );
    }
}
