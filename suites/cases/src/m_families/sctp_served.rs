//! `sctp-served`: SCTP, TCP and UDP on one port number of a Service each reach their own backends, at the ClusterIP and at
//! node ports. Associations carry messages until the hold time is over, while the SCTP backend changes for new ones.
//!
//! Each backend serves all three protocols, with an identity for each: a key without the protocol shows as the wrong
//! backend. The control is SCTP from client to pod, without a Service. Associations have one address at each end, also
//! those of hosts, which have several: multi-homing is no claim (KEP-614).
use std::time::Duration;

use cluster::{Capability, Family};
use futures::try_join;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    flows::Flows,
    frontends::{self, Frontends, Vantage},
    names::Key,
    pods::{Backend, endpoints, serve},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "sctp-served",
    area: super::AREA,
    claims: &["sctp-served"],
    sentence: "SCTP, TCP and UDP on one port number reach their own backends, and associations carry messages",
    tier: Tier::Core,
    features: &["sctp"],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Sctp],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("sctp_served.yaml"),
    longest: Duration::from_secs(360),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
/// The backends: the first of each protocol, and the one that SCTP has next.
const NAMES: [&str; 4] = ["s", "t", "u", "s2"];
/// Transport, and the backend that it reaches.
const REACHED: [(Transport, usize); 3] = [(Transport::Sctp, 0), (Transport::Tcp, 1), (Transport::Udp, 2)];
/// Associations to each frontend, of the clients inside in turn, and of the one outside.
const ASSOCIATIONS: u32 = 4;
/// From one message of an association to the next.
const EVERY: Duration = Duration::from_secs(1);

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service with one port number for SCTP, TCP and UDP, each with its own backend");
    let namespace = cx.namespace().await?;
    let nodes = cx.nodes();
    let pod = |(name, node): (&&str, &String)| {
        let mut args = serve(name, &namespace, &[TARGET], &[TARGET]);
        let sctp = ["--sctp".to_owned(), TARGET.to_string()].map(Value::from);
        args.as_array_mut()
            .into_iter()
            .for_each(|args| args.extend(sctp.clone()));
        json!({ "name": name, "namespace": namespace, "node": node, "args": args })
    };
    let pods: Vec<Value> = NAMES.iter().zip(nodes.iter().cycle()).map(pod).collect();
    let backends = cx.backends(&pods).await?;
    let within = Within::from_now(cx.limits().service);
    for family in cx.families() {
        let direct = direct(family, &backends)?;
        probing::control(
            cx,
            "pods are reached by SCTP",
            &cx.clients().in_pods(),
            &direct,
            within,
        )
        .await?;
    }
    let mut made = Vec::new();
    for family in cx.families() {
        made.push(create(cx, &namespace, family, &backends).await?);
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("verdict: each protocol reaches its own backend");
    let (mut all, mut by_sctp) = (Vec::new(), Vec::new());
    for service in &made {
        for (transport, number) in REACHED {
            let reached = at(cx, service, transport, &backends[number])?;
            if transport == Transport::Sctp {
                by_sctp.extend(reached.clone());
            }
            all.extend(reached);
        }
    }
    frontends::judge_all_briefly(cx, &all, within).await?;

    cx.phase("associations are opened, and the backend of SCTP changes");
    let mut flows = Flows::none();
    for (clients, targets) in by_sctp {
        let within = Within::from_now(cx.limits().service);
        flows = flows.and(Flows::open_every(cx, &clients, &targets, ASSOCIATIONS, EVERY, within).await?);
    }
    let mut within = within;
    for service in &made {
        let slice = Key::slice(&namespace, &format!("{}-sctp", service.service.name));
        let next = json!({ "endpoints": endpoints(&backends[3..], service.family)? });
        let written = cx.objects().patch(&slice, next).await?;
        within = Within::from(written.at, cx.limits().endpoints);
    }
    let mut next = Vec::new();
    for service in &made {
        next.extend(at(cx, service, Transport::Sctp, &backends[3])?);
    }

    cx.phase("verdict: new associations reach the new backend, and those that were open carry messages for the hold time");
    frontends::settle_all(cx, &next, within).await?;
    let hold = cx.limits().hold;
    let held = frontends::begin_all(cx, &next, hold).await?;
    try_join!(frontends::hold_all(cx, held), flows.hold(cx, hold))?;
    Ok(())
}

async fn create(
    cx: &Context,
    namespace: &str,
    family: Family,
    backends: &[Backend],
) -> Result<Frontends, Halt> {
    let of = |number: usize| endpoints([&backends[number]], family);
    let values = json!({
        "namespace": namespace, "service": format!("of-three-{family}").to_lowercase(), "family": family.to_string(),
        "sctp": of(0)?, "tcp": of(1)?, "udp": of(2)?,
    });
    let made = Frontends::create(cx, family, values.clone()).await?;
    for slice in ["${service}-sctp", "${service}-tcp", "${service}-udp"] {
        cx.apply(slice, &values).await?;
    }
    Ok(made)
}

/// The pods themselves, by SCTP.
fn direct(family: Family, backends: &[Backend]) -> Result<Vec<Destination>, Halt> {
    let at = |backend: &Backend| {
        let (address, by) = (
            backend.address(family)?,
            identities([backend], Transport::Sctp, TARGET),
        );
        let axis = family.to_string();
        Ok(Destination::serves(
            &axis,
            &backend.server(),
            Transport::Sctp,
            (address, TARGET).into(),
            by,
        ))
    };
    backends.iter().map(at).collect()
}

/// The frontends of a Service for one transport, which this backend must serve.
fn at(cx: &Context, made: &Frontends, transport: Transport, backend: &Backend) -> Result<Vec<Vantage>, Halt> {
    let axis = made.family.to_string();
    let by = identities([backend], transport, TARGET);
    let outside = made.at_nodes(cx, &axis, transport, &by)?;
    let inside = [
        vec![made.at_cluster_ip(&axis, transport, PORT, &by)],
        outside.clone(),
    ]
    .concat();
    Ok(frontends::vantages(cx, inside, outside))
}
