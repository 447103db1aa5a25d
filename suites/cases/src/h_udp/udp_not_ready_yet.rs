//! `udp-not-ready-yet`: unconnected sockets send once a second before their Service exists, before its endpoint is ready,
//! and, with `internalTrafficPolicy: Local`, before there is one on their node. Within the endpoint propagation limit of
//! the write that changes this, the same sockets are served, which have never paused.
//!
//! What becomes of the early datagrams is recorded: where the call itself is refused, no packet has left the client.
use std::time::Duration;

use cluster::Family;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends},
    names::Key,
    pods::{Backend, endpoints},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::{Value, json};

use super::staging::{PORT, Senders, TARGET, Talk};

pub(crate) const CASE: Case = Case {
    id: "udp-not-ready-yet",
    area: super::AREA,
    claims: &["udp-not-ready-yet"],
    sentence: "UDP sockets that have sent before their Service could serve are served as soon as it can",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("udp_not_ready_yet.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// What is missing when the sockets begin to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Service,
    ReadyEndpoint,
    LocalEndpoint,
}

impl Missing {
    const ALL: [Self; 3] = [Self::Service, Self::ReadyEndpoint, Self::LocalEndpoint];

    /// The axis, and the name of the Service.
    fn words(self) -> [&'static str; 2] {
        match self {
            Self::Service => ["before the Service", "late"],
            Self::ReadyEndpoint => ["before the endpoint is ready", "unready"],
            Self::LocalEndpoint => ["before an endpoint is local", "local"],
        }
    }
}

/// A Service that cannot serve yet.
struct Early {
    missing: Missing,
    family: Family,
    service: String,
    target: Destination,
    clients: Vec<Client>,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services that cannot serve yet");
    let namespace = cx.namespace().await?;
    let all = frontends::serving(cx, &namespace, &["near", "far"], &[], &[TARGET]).await?;
    let mut early = Vec::new();
    for family in cx.families() {
        for missing in Missing::ALL {
            early.push(stage(cx, &namespace, family, missing, &all).await?);
        }
    }
    fence::pass(cx).await?;

    cx.phase("control: sockets send, and reach no backend");
    let mut senders = Senders::none();
    for Early { target, clients, .. } in &early {
        let target = std::slice::from_ref(target);
        senders = senders.and_from(cx, clients, target, Talk::Answered, 1).await?;
    }
    let (flows, within) = (senders.flows(), Within::from_now(cx.limits().service));
    let unserved = senders.reaching(&[]);
    flows.control(cx, "nothing serves yet", &unserved, within).await?;
    flows.record_outcomes(cx, "early datagrams");

    cx.phase("what is missing comes");
    for one in &early {
        one.comes(cx, &namespace, &all).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;

    cx.phase("verdict: the same sockets are served");
    flows.come_to(cx, &senders.reaching(&all[..1]), within).await
}

async fn stage(
    cx: &Context,
    namespace: &str,
    family: Family,
    missing: Missing,
    all: &[Backend],
) -> Result<Early, Halt> {
    let [words, name] = missing.words();
    let service = format!("{name}-{family}").to_lowercase();
    let near = &all[..1];
    let (first, listed) = match missing {
        // It only reserves an address, and its name is never used again.
        Missing::Service => (format!("reserves-{family}").to_lowercase(), json!([])),
        Missing::ReadyEndpoint => (service.clone(), json!([all[0].endpoint(family, false)?])),
        Missing::LocalEndpoint => (service.clone(), endpoints(&all[1..], family)?),
    };
    let made = create(cx, namespace, family, (&first, missing, Value::Null), listed).await?;
    if missing == Missing::Service {
        cx.objects().delete(&made.service).await?;
    }
    let axis = format!("{family}, {words}");
    let target = made.at_cluster_ip(&axis, Transport::Udp, PORT, &Default::default());
    let clients = match missing {
        Missing::LocalEndpoint => cx.clients().on(&near[0].node),
        _ => cx.clients().to_vec(),
    };
    Ok(Early {
        missing,
        family,
        service,
        target,
        clients,
    })
}

async fn create(
    cx: &Context,
    namespace: &str,
    family: Family,
    (service, missing, cluster_ip): (&str, Missing, Value),
    endpoints: Value,
) -> Result<Frontends, Halt> {
    let is_local = missing == Missing::LocalEndpoint;
    let values = json!({
        "namespace": namespace, "service": service, "cluster-ip": cluster_ip, "endpoints": endpoints,
        "policy": if is_local { "Local" } else { "Cluster" },
    });
    Frontends::create(cx, family, values).await
}

impl Early {
    /// The write after which it serves.
    async fn comes(&self, cx: &Context, namespace: &str, all: &[Backend]) -> Result<(), Halt> {
        let listed = match self.missing {
            Missing::LocalEndpoint => endpoints(all, self.family)?,
            _ => endpoints(&all[..1], self.family)?,
        };
        if self.missing == Missing::Service {
            let address = json!(self.target.address.ip());
            let service = (&*self.service, self.missing, address);
            create(cx, namespace, self.family, service, listed).await?;
        } else {
            let slice = Key::slice(namespace, &self.service);
            cx.objects().patch(&slice, json!({ "endpoints": listed })).await?;
        }
        Ok(())
    }
}
