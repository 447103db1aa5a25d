//! `release-prefix-condition`: the culprit's EndpointSlice turns its endpoints unready, then terminating, and then
//! removes them, while the victim's lists them as ready. At each step the victim serves them after a trigger:
//! conditions belong to the entry in an EndpointSlice, not to the address.
//!
//! The backends stay healthy, so an implementation that looked at the pods would serve the culprit. The culprit is
//! refused from the first step on; terminating endpoints here are not serving (serving ones would be the culprit's last
//! resort).
use std::time::Duration;

use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    verdict::Halt,
    write_effect::Effect,
};
use serde_json::{Value, json};

use super::{
    holders::{Hold, all_serve, released, undisturbed},
    pairs::{Pair, pairs, victims},
};

pub(crate) const CASE: Case = Case {
    id: "release-prefix-condition",
    area: super::AREA,
    claims: &["release-prefix-condition"],
    sentence: "a Service keeps its backends when one whose name is a prefix of its own lists them as unready or terminating",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("release_prefix_condition.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Conditions in the culprit's EndpointSlice, one after the other; the last step removes the endpoints.
const STEPS: [(&str, Option<Conditions>); 3] = [
    ("unready", Some(Conditions { terminating: false })),
    ("terminating", Some(Conditions { terminating: true })),
    ("removed", None),
];

/// Neither ready nor serving.
#[derive(Clone, Copy)]
struct Conditions {
    terminating: bool,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    let mut pairs = pairs(cx, &[((), "")]).await?;
    let agents = agents::all(cx).await?;
    all_serve(cx, pairs.iter().flat_map(Pair::both)).await?;

    for (step, (name, conditions)) in STEPS.into_iter().enumerate() {
        cx.phase(&format!("the culprit's endpoints are {name}"));
        let mut seen = Vec::new();
        for pair in &mut pairs {
            let endpoints = endpoints(pair, conditions)?;
            pair.culprit.write(cx, endpoints).await?;
            seen.push(pair.culprit.refuses());
        }
        let hold = if step + 1 == STEPS.len() {
            Hold::Time
        } else {
            Hold::Probes
        };
        let what = format!("the culprit refuses with endpoints {name}");
        released(cx, (Effect::Emptied, &what), &seen, victims(&pairs), hold).await?;
    }
    undisturbed(cx, victims(&pairs), agents.as_ref()).await
}

fn endpoints(pair: &Pair<()>, conditions: Option<Conditions>) -> Result<Value, Halt> {
    let Some(Conditions { terminating }) = conditions else {
        return Ok(json!([]));
    };
    let backends = pair.shared.iter();
    backends
        .map(|backend| {
            let mut endpoint = backend.endpoint(pair.culprit.family, false)?;
            endpoint["conditions"]["terminating"] = terminating.into();
            Ok(endpoint)
        })
        .collect()
}
