//! `kubesvc-refill-all-nodes`: the EndpointSlice of `default/kubernetes` is empty for 5, 60 and 300 s, then refilled
//! with (i) the same, (ii) another address. Within the endpoint propagation limit clients on every node connect through
//! the ClusterIP, only to the new address; agents are not restarted.
//!
//! In (ii) the old address is a trap for the hold time. 60 and 300 s are for the long profile. There every watch of the
//! agents is cut in the middle of the 300 s, so that a new watch finds the refill.
use std::time::Duration;

use cluster::{ApiFault, Capability, Clients, Fault};
use harness::{
    agents, api_faults, background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    limits::Profile,
    pods::Backend,
    probing,
    verdict::Halt,
    waiting::{Within, has_lasted},
};
use oracle::observations::{line, outcomes};

use super::kubernetes::{Kubernetes, backends};

pub(crate) const CASE: Case = Case {
    id: "kubesvc-refill-all-nodes",
    area: super::AREA,
    claims: &["kubesvc-refill-all-nodes"],
    sentence: "default/kubernetes serves what its refilled EndpointSlice lists, on every node, without an agent restart",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Unreconciled],
        target: &[],
    },
    // Other clients of default/kubernetes are affected.
    disruptive: true,
    manifest: include_str!("kubesvc_refill_all_nodes.yaml"),
    longest: Duration::from_secs(450),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// How long it is empty, and in which profile.
const DELAYS: [(Duration, Profile); 3] = [
    (Duration::from_secs(5), Profile::Lab),
    (Duration::from_secs(60), Profile::Long),
    (OUTLIVES_WATCHES, Profile::Long),
];
/// Long enough that the agents' watches end meanwhile.
const OUTLIVES_WATCHES: Duration = Duration::from_secs(300);

/// Endpoints that it is refilled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refill {
    Same,
    Another,
}

const REFILLS: [(Refill, &str); 2] = [
    (Refill::Same, "the same address"),
    (Refill::Another, "another address"),
];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: default/kubernetes has a pod as its backend");
    let namespace = cx.namespace().await?;
    let backends = backends(cx, &namespace).await?;
    let mut points = Vec::new();
    for (delay, profile) in DELAYS {
        if profile == Profile::Long && cx.limits().profile != Profile::Long {
            let why = format!("--profile {}", Profile::Long.name());
            cx.axes().not_enabled(&format!("empty for {delay:?}"), &why);
            continue;
        }
        if delay == OUTLIVES_WATCHES && !can_cut(cx) {
            cx.axes().not_enabled(
                &format!("empty for {delay:?}"),
                "nothing lets watches end meanwhile: the cluster's API servers can't be made to answer wrongly",
            );
            continue;
        }
        points.extend(REFILLS.map(|(refill, words)| (delay, refill, words)));
    }
    let name = |(delay, _, words): &(Duration, Refill, &str)| format!("empty for {delay:?}, {words}");
    for point in cx.axes().choose(points, name) {
        let kubernetes = Kubernetes::take(cx).await?;
        let axis = format!("{}, {}", kubernetes.family, name(&point));
        let (delay, refill, _) = point;
        match refilled(cx, &kubernetes, &axis, (delay, refill), &backends).await {
            Err(Halt::Inconclusive(why)) => cx.axes().inconclusive(&axis, why, Vec::new()),
            done => done?,
        }
        kubernetes.give_back(cx).await?;
    }
    Ok(())
}

/// Whether watches can be ended.
fn can_cut(cx: &Context) -> bool {
    let capabilities = &cx.cluster().describe().capabilities;
    capabilities.contains(&Capability::WrongAnswers)
}

/// A combination of the axes.
async fn refilled(
    cx: &Context,
    kubernetes: &Kubernetes,
    axis: &str,
    (delay, refill): (Duration, Refill),
    [old, other]: &[Backend; 2],
) -> Result<(), Halt> {
    let new = match refill {
        Refill::Same => old,
        Refill::Another => other,
    };
    cx.phase(&format!("{axis}: control"));
    let listed = kubernetes.list(cx, &[old]).await?;
    let within = Within::from(listed.at, cx.limits().endpoints);
    fence::pass(cx).await?;
    let serves = [kubernetes.serves(axis, &[old])];
    probing::control(cx, "it serves the first address", cx.clients(), &serves, within).await?;

    cx.phase(&format!("{axis}: emptied"));
    let agents = agents::all(cx).await?;
    let cut = if delay == OUTLIVES_WATCHES {
        let fault = ApiFault::Answers {
            server: None,
            clients: Clients::All,
            fault: Fault::CutWatches { after: delay / 2 },
        };
        Some(api_faults::begin(cx, &fault, delay + cx.limits().endpoints).await?)
    } else {
        None
    };
    let emptied = kubernetes.empty(cx).await?;
    // Witness: every node has handled the empty EndpointSlice, as it may be served all the same.
    fence::pass(cx).await?;
    let permitted = [kubernetes.serves_or_refuses(axis, &[old])];
    let within = Within::from(emptied.at, cx.limits().endpoints);
    let meanwhile = probing::judge(cx, cx.clients(), &permitted, within).await?;
    cx.record(&format!("{axis}: while it is empty"), line(&outcomes(&meanwhile)));
    has_lasted(emptied.at, delay).await;
    if let Some(cut) = cut {
        cut.heal().await?;
    }

    cx.phase(&format!("{axis}: refilled"));
    let refilled = kubernetes.list(cx, &[new]).await?;
    let within = Within::from(refilled.at, cx.limits().endpoints);
    let serves = [kubernetes.serves(axis, &[new])];
    let mut attempts = probing::judge(cx, cx.clients(), &serves, within).await?;
    if refill == Refill::Another {
        let hold = cx.limits().hold;
        attempts.extend(background::hold_steadily(cx, cx.clients(), &serves, hold).await?);
        probing::trap_untouched(cx, axis, &attempts, old).await?;
    }
    agents::no_restart(cx, axis, agents.as_ref()).await
}
