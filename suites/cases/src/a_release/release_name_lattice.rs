//! `release-name-lattice`: Services `t`, `t0`, `ta`, `t-a` and `t-a-b` share backends. Each in turn is emptied, all
//! others get a trigger, and it is refilled. The other four serve at every step, whichever name is longer.
//!
//! What follows the common `t` sorts on both sides of `/`, space and `-`, so that a separator alone fixes nothing. At
//! least two others share the backends at the time of release: with one holder, broken code takes a shortcut. Each
//! Service is the culprit once, so each is older than it and younger than it.
use std::time::Duration;

use cluster::Family;
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    probing,
    verdict::Halt,
    waiting::Within,
    write_effect::Effect,
};

use super::holders::{
    Hold, Holder, SHARED, Wanted, all_serve, backends, released, some, target, undisturbed,
};

pub(crate) const CASE: Case = Case {
    id: "release-name-lattice",
    area: super::AREA,
    claims: &["release-name-lattice"],
    sentence: "Services whose names are prefixes of each other keep their backends when each in turn is emptied and refilled",
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
    manifest: include_str!("release_name_lattice.yaml"),
    longest: Duration::from_secs(900),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const NAMES: [&str; 5] = ["t", "t0", "ta", "t-a", "t-a-b"];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: five Services list the same backends");
    let namespace = cx.namespace().await?;
    let points = points(cx);
    let shared = points.iter().map(|(_, shared)| *shared);
    let all = backends(cx, &namespace, points.len(), shared).await?;
    let mut order = NAMES;
    cx.shuffle(&mut order);
    cx.record("order of the releases", order.join(", "));
    let mut lattices: Vec<Vec<Holder>> = Vec::new();
    for point in points {
        let (at, axis) = (lattices.len(), axis(&point));
        let (family, shared) = point;
        let (namespace, shared) = (cx.namespace().await?, some(&all, at, shared));
        let mut names = NAMES;
        cx.shuffle(&mut names);
        let mut lattice = Vec::new();
        for service in names {
            let wanted = Wanted {
                axis: &axis,
                family,
                namespace: &namespace,
                service,
                slice: service,
                target: target(at),
                backends: &shared,
            };
            lattice.push(Holder::make(cx, &wanted).await?);
        }
        lattices.push(lattice);
    }
    let agents = agents::all(cx).await?;
    all_serve(cx, lattices.iter().flatten()).await?;

    for (step, name) in order.into_iter().enumerate() {
        cx.phase(&format!("release: {name} is emptied"));
        let mut seen = Vec::new();
        for holder in lattices
            .iter_mut()
            .flatten()
            .filter(|one| one.service.plain() == name)
        {
            holder.list(cx, &[]).await?;
            seen.push(holder.refuses());
        }
        let hold = if step + 1 == NAMES.len() {
            Hold::Time
        } else {
            Hold::Probes
        };
        let victims = lattices
            .iter()
            .flatten()
            .filter(|one| one.service.plain() != name);
        released(
            cx,
            (Effect::Emptied, &format!("{name} refuses")),
            &seen,
            victims,
            hold,
        )
        .await?;
        cx.phase(&format!("{name} is refilled"));
        let mut refilled = Vec::new();
        for holder in lattices
            .iter_mut()
            .flatten()
            .filter(|one| one.service.plain() == name)
        {
            holder.list_again(cx).await?;
            refilled.extend(holder.serves());
        }
        let within = Within::from_now(cx.limits().endpoints);
        probing::judge_briefly(cx, cx.clients(), &refilled, within).await?;
    }
    undisturbed(cx, lattices.iter().flatten(), agents.as_ref()).await
}

fn points(cx: &Context) -> Vec<(Family, usize)> {
    let of = |family| SHARED.map(|shared| (family, shared));
    cx.axes()
        .choose(cx.families().into_iter().flat_map(of).collect(), axis)
}

fn axis((family, shared): &(Family, usize)) -> String {
    format!("{family}, {shared} shared")
}
