//! `lb-source-ranges`: with `loadBalancerSourceRanges`, the load balancer address serves clients inside a range and no
//! other one. Ranges are given, replaced, widened, narrowed and deleted; each is exact within the Service propagation
//! limit, and after the deletion all clients are served.
//!
//! The client outside has two addresses of its own network more. The Service has an address of a load balancer for each,
//! and the client's route to it names the address from which it dials: both are probed side by side.
use std::{net::IpAddr, time::Duration};

use cluster::{Capability, Family};
use harness::{
    background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends},
    names::Key,
    pods::endpoints,
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::{Value, json};

use super::vips;

pub(crate) const CASE: Case = Case {
    id: "lb-source-ranges",
    area: super::AREA,
    claims: &["lb-source-ranges"],
    sentence: "a load balancer address serves the clients of its source ranges alone, however these change",
    tier: Tier::Core,
    features: &["source-ranges"],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Outside, Capability::SecondNetwork],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("lb_source_ranges.yaml"),
    longest: Duration::from_secs(400),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
/// Addresses of the load balancer, one for each of the client's.
const VIPS: [u8; 2] = [14, 15];
/// The last number of the client's further addresses.
const SOURCES: [u8; 2] = [201, 202];

/// Ranges of a Service: of which sources alone, or of one range with both; none is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranges {
    Deleted,
    Of(&'static [usize]),
    Wide,
}

/// One after the other.
const STEPS: [Ranges; 7] = [
    Ranges::Deleted,
    Ranges::Of(&[0]),
    Ranges::Of(&[0, 1]),
    Ranges::Of(&[1]),
    Ranges::Wide,
    Ranges::Of(&[0]),
    Ranges::Deleted,
];
/// Steps that are held: each of the sources is not served in one of them.
const HELD: [usize; 2] = [1, 3];

impl Ranges {
    fn admits(self, source: usize) -> bool {
        match self {
            Self::Deleted | Self::Wide => true,
            Self::Of(sources) => sources.contains(&source),
        }
    }

    fn listed(self, sources: [IpAddr; 2]) -> Value {
        let length = if sources[0].is_ipv4() { 32 } else { 128 };
        match self {
            Self::Deleted => Value::Null,
            Self::Of(of) => of.iter().map(|at| format!("{}/{length}", sources[*at])).collect(),
            // 201 and 202 differ in their last two bits.
            Self::Wide => json!([format!("{}/{}", vips::with_last(sources[0], 200), length - 2)]),
        }
    }
}

struct Ranged {
    family: Family,
    service: Key,
    sources: [IpAddr; 2],
    served: Vec<(usize, Destination)>,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service with two addresses, dialled from two sources");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b"], &[TARGET], &[TARGET]).await?;
    let client = cx.clients().outside();
    let outside = [client.ok_or_else(|| Halt::Harness("no client outside".to_owned()))?];
    let mut all = Vec::new();
    for family in cx.families() {
        let service = format!("ranged-{family}").to_lowercase();
        let values =
            json!({ "namespace": namespace, "service": service, "endpoints": endpoints(&backends, family)? });
        let made = Frontends::create(cx, family, values).await?;
        let addresses = VIPS.map(|number| vips::vip(family, number));
        frontends::give_balancers(cx, &made.service, &addresses).await?;
        let mut sources = [vips::own(cx, &outside[0], family, SOURCES[0]).await?; 2];
        sources[1] = vips::own(cx, &outside[0], family, SOURCES[1]).await?;
        let mut served = Vec::new();
        for (at, (vip, source)) in addresses.into_iter().zip(sources).enumerate() {
            vips::route(cx, family, &[vip], &cx.nodes()[0], Some(source)).await?;
            for transport in [Transport::Tcp, Transport::Udp] {
                let by = identities(&backends, transport, TARGET);
                let target = made.at(
                    &family.to_string(),
                    &format!("from {source}"),
                    transport,
                    (vip, PORT).into(),
                    &by,
                );
                served.push((at, target));
            }
        }
        all.push(Ranged {
            family,
            service: made.service,
            sources,
            served,
        });
    }
    for (at, step) in STEPS.into_iter().enumerate() {
        cx.phase(&format!("verdict: source ranges are {step:?}"));
        for one in &all {
            let ranges = json!({ "spec": { "loadBalancerSourceRanges": step.listed(one.sources) } });
            cx.objects().patch(&one.service, ranges).await?;
        }
        let within = Within::from_now(cx.limits().service);
        fence::pass(cx).await?;
        let targets: Vec<Destination> = all.iter().flat_map(|one| one.targets(step)).collect();
        probing::judge(cx, &outside, &targets, within).await?;
        if HELD.contains(&at) {
            background::hold_steadily(cx, &outside, &targets, cx.limits().hold).await?;
        }
    }
    Ok(())
}

impl Ranged {
    /// Clients inside the ranges must be served, and others must not.
    fn targets(&self, ranges: Ranges) -> Vec<Destination> {
        let axis = |source: usize| format!("{}, source {}", self.family, source + 1);
        let each = |(source, target): &(usize, Destination)| {
            if ranges.admits(*source) {
                Destination {
                    axis: axis(*source),
                    ..target.clone()
                }
            } else {
                Destination::none(&axis(*source), &target.name, target.transport, target.address)
            }
        };
        self.served.iter().map(each).collect()
    }
}
