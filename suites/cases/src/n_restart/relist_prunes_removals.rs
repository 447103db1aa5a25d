//! `relist-prunes-removals`: agents lose the API for so long that they must list again; meanwhile an endpoint is
//! replaced by another, and, in a second run, right after the API is back. Nothing more is written. Within the recovery
//! limit the removed endpoint, which stays alive, gets no connection on any node.
//!
//! No event says that it was removed: only that the new list does not have it. Watches that agents go on with are
//! answered with 410 Gone for a while, so that each lists again. Nothing is written from the start of the agents to the
//! cut, and nothing after the replacement: any later write of the EndpointSlice would heal it.
use std::time::{Duration, Instant};

use cluster::{ApiFault, Capability, Clients, Fault};
use harness::{
    api_cut::{self, ApiCut},
    api_faults,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    probing,
    verdict::Halt,
    waiting::{Within, has_lasted},
};

use super::outage::Swapped;

pub(crate) const CASE: Case = Case {
    id: "relist-prunes-removals",
    area: super::AREA,
    claims: &["relist-prunes-removals"],
    sentence: "an endpoint that was removed while agents had no watch gets no connection after their next list",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::ApiServers, Capability::WrongAnswers],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("agents.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// When the endpoint is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swap {
    WhileCut,
    FirstUpdate,
}

/// With the names of the Services of each.
const RUNS: [(Swap, (&str, &str)); 2] = [
    (Swap::WhileCut, ("parted", "replaced while cut")),
    (Swap::FirstUpdate, ("rejoined", "replaced as the first update")),
];
/// How long the cut lasts: agents have tried to go on with their watches, and wait between tries.
const CUT: Duration = Duration::from_secs(10);
/// How long watches are then answered with 410 at most: it ends before what T_heal counts from.
const GONE: Duration = Duration::from_secs(60);

async fn run(cx: &Context) -> Result<(), Halt> {
    for (swap, names) in cx.axes().choose(RUNS.to_vec(), |(_, names)| names.1.to_owned()) {
        let services = Swapped::stage(cx, names).await?;
        let servers = api_cut::servers(cx).await?;
        let agents = api_cut::connected(cx, &servers).await?;

        cx.phase("fault: agents lose the API, and must list again");
        let gone = ApiFault::Answers {
            server: None,
            clients: Clients::All,
            fault: Fault::Expire,
        };
        let cut = ApiCut::begin(cx, &agents, &servers, CUT).await?;
        let began = Instant::now();
        let gone = api_faults::begin(cx, &gone, GONE).await?;
        api_cut::reset(cx, &agents, &servers).await?;
        if swap == Swap::WhileCut {
            services.list(cx, 1).await?;
        }
        has_lasted(began, CUT).await;
        cut.end(cx).await?;
        // Each has listed again when it has a connection again.
        api_cut::connected(cx, &servers).await?;
        gone.heal().await?;
        if swap == Swap::FirstUpdate {
            services.list(cx, 1).await?;
        }
        let within = Within::from_now(cx.limits().heal);

        cx.phase("verdict: the removed endpoint gets no connection on any node");
        for (clients, targets) in services.dialled(cx, 1).await? {
            probing::judge(cx, &clients, &targets, within).await?;
        }
    }
    Ok(())
}
