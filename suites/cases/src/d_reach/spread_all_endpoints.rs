//! `spread-all-endpoints`: of 100 new connections for each of 3 and of 10 endpoints, from four client pods together, each
//! endpoint gets between half and twice its fair share; and so with datagrams of new sockets. Every client reaches all
//! endpoints.
//!
//! The endpoints are spread over two EndpointSlices and all nodes.
use std::time::Duration;

use cluster::Family;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends},
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "spread-all-endpoints",
    area: super::AREA,
    claims: &["spread-all-endpoints"],
    sentence: "new connections spread over 3 and over 10 endpoints, each with between half and twice its fair share",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("spread_all_endpoints.yaml"),
    longest: Duration::from_secs(240),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
const ENDPOINTS: [usize; 2] = [3, 10];
const BACKENDS: [&str; 10] = ["b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9"];
const CLIENTS: [&str; 4] = ["c0", "c1", "c2", "c3"];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with 3 and with 10 endpoints, and four client pods");
    let namespace = cx.namespace().await?;
    let names = [&BACKENDS[..], &CLIENTS[..]].concat();
    let mut backends = frontends::serving(cx, &namespace, &names, &[TARGET], &[TARGET]).await?;
    let clients: Vec<Client> = backends
        .split_off(BACKENDS.len())
        .iter()
        .map(Client::in_pod)
        .collect();
    let sizes = cx
        .axes()
        .choose(ENDPOINTS.to_vec(), |size| format!("{size} endpoints"));
    let mut targets = Vec::new();
    for family in cx.families() {
        for size in &sizes {
            targets.extend(stage(cx, &namespace, family, &backends[..*size]).await?);
        }
    }
    let within = Within::from_now(cx.limits().service);

    cx.phase("control: the Services serve, by whichever endpoint");
    fence::pass(cx).await?;
    let any = |target: &Destination| {
        let by = identities(&backends, target.transport, TARGET);
        Destination::serves_one_of(&target.axis, &target.name, target.transport, target.address, by)
    };
    let any: Vec<Destination> = targets.iter().map(any).collect();
    probing::control(cx, "the Services serve", &clients, &any, within).await?;

    cx.phase("verdict: new connections are spread");
    probing::judge_spread(cx, &clients, &targets).await
}

async fn stage(
    cx: &Context,
    namespace: &str,
    family: Family,
    backends: &[Backend],
) -> Result<Vec<Destination>, Halt> {
    let (first, second) = backends.split_at(backends.len() / 2);
    let size = backends.len();
    let values = json!({
        "namespace": namespace, "service": format!("of-{size}-{family}").to_lowercase(), "family": family.to_string(),
        "first": endpoints(first, family)?, "second": endpoints(second, family)?,
    });
    let made = Frontends::create(cx, family, values.clone()).await?;
    for slice in ["${service}-1", "${service}-2"] {
        cx.apply(slice, &values).await?;
    }
    let axis = format!("{family}, {size} endpoints");
    let at = |transport| {
        let by = identities(backends, transport, TARGET);
        made.at_cluster_ip(&axis, transport, PORT, &by)
    };
    Ok([Transport::Tcp, Transport::Udp].map(at).to_vec())
}
