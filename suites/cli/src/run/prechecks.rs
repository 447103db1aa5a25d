//! Checks before a run that decide what runs: whether load balancers get addresses, and which of the target's programs
//! and maps exist on a node. Each is checked once, and only if a case needs it that could otherwise run.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use cluster::{Capability, Cluster, Description};
use faults::Found;
use harness::{
    case::{Case, Needs},
    lb_addresses,
    limits::Limits,
    verdict::Verdict,
};
use tokio::time::{sleep, timeout};

use super::{
    seconds,
    select::{Selection, select},
};
use crate::terminal;

/// How long something may be missing on a node until it counts as absent: an agent that has just started attaches
/// nothing before it has read the API. Own choice; something present is found at once.
const SETTLES: Duration = Duration::from_secs(10);
/// Limit of one check of a node: it starts five programs there.
const LOOK: Duration = Duration::from_secs(60);
/// Interval between checks.
const AGAIN: Duration = Duration::from_millis(500);

/// The inputs of the selection.
pub(super) struct Wanted<'a> {
    pub(super) named: Vec<Case>,
    pub(super) features: &'a BTreeSet<String>,
    pub(super) limits: &'a Limits,
    pub(super) run: &'a str,
}

/// Decides what runs in a cluster, and completes its description.
pub(super) async fn decide(
    wanted: Wanted<'_>,
    cluster: &Cluster,
    description: &mut Description,
) -> Selection {
    let Wanted {
        named,
        features,
        limits,
        run,
    } = wanted;
    let select =
        |description: &Description, found| select(named.clone(), description, features, limits, found);
    find_addresses(cluster, description, limits, run, |assumed| select(assumed, None)).await;
    let selection = select(description, None);
    let Some(node) = description
        .nodes
        .first()
        .filter(|_| selection.run.iter().any(is_about_nodes))
    else {
        return selection;
    };
    terminal::stage(&format!("looking at what the target has on {}", node.name));
    let look = Node {
        cluster,
        name: &node.name,
        settles: SETTLES.mul_f64(limits.scale.max(1.0)),
    };
    match look
        .until(|found| is_complete(&selection, description, found))
        .await
    {
        Ok(found) => select(description, Some(&found)),
        Err(why) => undecided(
            selection,
            &format!("what the target has on {} can't be seen: {why}", node.name),
        ),
    }
}

fn is_about_nodes(case: &Case) -> bool {
    let Needs { target, .. } = case.needs;
    target.iter().any(|need| need.is_on_nodes())
}

/// Whether everything was found that a case needs.
fn is_complete(selection: &Selection, cluster: &Description, found: &Found) -> bool {
    let mut needs = selection.run.iter().flat_map(|case| case.needs.target);
    needs.all(|need| need.lacks(cluster, Some(found)).is_none())
}

/// Makes the cases that need the check inconclusive, because the check itself failed.
fn undecided(selection: Selection, why: &str) -> Selection {
    let Selection { run, mut excluded } = selection;
    let (about_nodes, run) = run.into_iter().partition::<Vec<_>, _>(is_about_nodes);
    let verdict = || Verdict::Inconclusive { why: why.to_owned() };
    excluded.extend(about_nodes.into_iter().map(|case| (case, verdict())));
    Selection { run, excluded }
}

/// Checks whether Services get load balancer addresses, if that decides whether a case runs.
async fn find_addresses(
    cluster: &Cluster,
    description: &mut Description,
    limits: &Limits,
    run: &str,
    select: impl Fn(&Description) -> Selection,
) {
    const ADDRESSES: Capability = Capability::LoadBalancerAddresses;
    if description.capabilities.contains(&ADDRESSES) {
        return;
    }
    let mut assumed = description.clone();
    assumed.capabilities.insert(ADDRESSES);
    let could_run = select(&assumed).run;
    if !could_run.iter().any(|case| case.needs.also.contains(&ADDRESSES)) {
        return;
    }
    terminal::stage(&format!(
        "seeing whether a Service of type LoadBalancer gets an address, for up to {} s",
        limits.service.as_secs()
    ));
    let why = match lb_addresses::lacking(cluster, run, limits).await {
        Ok(None) => {
            *description = assumed;
            return;
        }
        Ok(Some(why)) => why,
        Err(error) => error.to_string(),
    };
    description.lacking.insert(ADDRESSES, why);
}

/// The node that is checked.
struct Node<'a> {
    cluster: &'a Cluster,
    name: &'a str,
    settles: Duration,
}

impl Node<'_> {
    /// Repeats the check until everything was found, or the time is over.
    async fn until(&self, is_complete: impl Fn(&Found) -> bool) -> Result<Found, String> {
        let began = Instant::now();
        loop {
            let found = timeout(LOOK, Found::on(self.cluster, self.name, 2 * LOOK))
                .await
                .map_err(|_| format!("not within {}", seconds(LOOK)))?
                .map_err(|error| error.to_string())?;
            if is_complete(&found) || began.elapsed() >= self.settles {
                return Ok(found);
            }
            sleep(AGAIN).await;
        }
    }
}
