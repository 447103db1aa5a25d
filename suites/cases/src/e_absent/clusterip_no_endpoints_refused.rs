//! `clusterip-no-endpoints-refused`: the ClusterIP of a Service without usable endpoints refuses within 1 s, from pods
//! and hosts. With UDP, a connected socket gets an error within 1 s, or nothing. The errno is recorded, and whether a
//! packet or the socket call reported it.
//!
//! Two shapes: no EndpointSlice at all, and an empty one. The same Service has served before, and its backend stays
//! alive and logging: it is the trap. A TCP client that times out fails the claim.

use std::{net::IpAddr, time::Duration};

use cluster::Family;
use harness::{
    background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    names::Key,
    pods::{Backend, endpoints, serve},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::{Attempt, Transport};
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "clusterip-no-endpoints-refused",
    area: super::AREA,
    claims: &["clusterip-no-endpoints-refused"],
    sentence: "a ClusterIP without endpoints refuses within 1 s from pods and hosts",
    tier: Tier::Core,
    features: &[],
    // EndpointSlices are hand-written: the shapes are about them.
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("clusterip_no_endpoints_refused.yaml"),
    longest: Duration::from_secs(450),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::UdpConnected];
const PORT: u16 = 7480;
const TARGET: u16 = 8080;

/// How the endpoints are removed.
#[derive(Clone, Copy, Debug)]
enum Shape {
    NoSlice,
    EmptySlice,
}

impl Shape {
    fn words(self) -> &'static str {
        match self {
            Self::NoSlice => "no slice",
            Self::EmptySlice => "empty slice",
        }
    }
}

struct Staged {
    axis: String,
    shape: Shape,
    vip: IpAddr,
    slice: Key,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: two Services with an endpoint each");
    let namespace = cx.namespace().await?;
    let node = &cx.nodes()[0];
    let args = serve("b", &namespace, &[TARGET], &[TARGET]);
    let values = json!({ "name": "b", "namespace": namespace, "node": node, "args": args });
    let backend = cx.backends(&[values]).await?.remove(0);
    let mut staged = Vec::new();
    let shapes = cx
        .axes()
        .choose(vec![Shape::NoSlice, Shape::EmptySlice], |shape| {
            shape.words().to_owned()
        });
    for family in cx.families() {
        for shape in &shapes {
            staged.push(stage(cx, family, *shape, &backend).await?);
        }
    }

    cx.phase("control: both serve");
    let serves: Vec<Destination> = staged
        .iter()
        .flat_map(|one| TRANSPORTS.map(|transport| one.serves(transport, &backend)))
        .collect();
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    probing::control(
        cx,
        "the same Service served before",
        cx.clients(),
        &serves,
        within,
    )
    .await?;

    cx.phase("fault: the endpoints are removed");
    for one in &staged {
        match one.shape {
            Shape::NoSlice => cx.objects().delete(&one.slice).await?,
            Shape::EmptySlice => cx.objects().patch(&one.slice, json!({ "endpoints": [] })).await?,
        };
    }
    let within = Within::from_now(cx.limits().endpoints);

    cx.phase("verdict: refused, and for the hold time after the fence");
    let refuses: Vec<Destination> = staged
        .iter()
        .flat_map(|one| TRANSPORTS.map(|transport| one.refuses(transport)))
        .collect();
    fence::pass(cx).await?;
    let attempts = probing::judge(cx, cx.clients(), &refuses, within).await?;
    let hold = cx.limits().hold;
    let held = background::hold_steadily(cx, cx.clients(), &refuses, hold).await?;
    let all = [attempts, held].concat();
    probing::record_endings(cx, "refusal", &all);
    for one in &staged {
        let own: Vec<Attempt> = all
            .iter()
            .filter(|attempt| attempt.destination.ip() == one.vip)
            .cloned()
            .collect();
        probing::trap_untouched(cx, &one.axis, &own, &backend).await?;
    }
    Ok(())
}

async fn stage(cx: &Context, family: Family, shape: Shape, backend: &Backend) -> Result<Staged, Halt> {
    let namespace = cx.namespace().await?;
    let service = match shape {
        Shape::NoSlice => "bare",
        Shape::EmptySlice => "hollow",
    };
    // Services of the other shapes and families may be in this namespace, too.
    let service = format!("{service}-{}", family.to_string().to_lowercase());
    let values = json!({
        "namespace": namespace, "service": service, "family": family.to_string(),
        "endpoints": endpoints([backend], family)?,
    });
    let vip = cx
        .apply("${service}", &values)
        .await?
        .ok_or_else(|| Halt::Harness("the manifest has no Service".to_owned()))?;
    let slice = Key::slice(&namespace, &service);
    Ok(Staged {
        axis: format!("{family}, {}", shape.words()),
        shape,
        vip,
        slice,
    })
}

impl Staged {
    fn serves(&self, transport: Transport, backend: &Backend) -> Destination {
        let expected = identities([backend], transport, TARGET);
        Destination::serves(&self.axis, "cip", transport, (self.vip, PORT).into(), expected)
    }

    fn refuses(&self, transport: Transport) -> Destination {
        Destination::refuses(&self.axis, "cip", transport, (self.vip, PORT).into())
    }
}
