//! Pairs of a culprit and a victim that list the same backends: one for each combination of the axes that all these
//! cases have, and of one axis of the case's own.

use cluster::Family;
use harness::{context::Context, pods::Backend, verdict::Halt};

use super::holders::{Holder, SHARED, Wanted, backends, some, target};

/// Their names: the culprit's is a prefix of the victim's.
const CULPRIT: &str = "t";
const VICTIM: &str = "t-ext";

/// A culprit and its victim in one combination of the axes.
pub(super) struct Pair<How> {
    pub(super) culprit: Holder,
    pub(super) victim: Holder,
    /// Backends that both list.
    pub(super) shared: Vec<Backend>,
    /// Value of the case's own axis.
    pub(super) how: How,
}

impl<How> Pair<How> {
    pub(super) fn both(&self) -> [&Holder; 2] {
        [&self.culprit, &self.victim]
    }
}

/// All victims.
pub(super) fn victims<How>(pairs: &[Pair<How>]) -> Vec<&Holder> {
    pairs.iter().map(|pair| &pair.victim).collect()
}

/// A combination of the axes.
pub(super) struct Point<How> {
    pub(super) family: Family,
    /// Value of the case's own axis, with its name.
    pub(super) how: How,
    pub(super) name: &'static str,
    /// Number of backends that both list.
    pub(super) shared: usize,
    /// The victim is created before the culprit.
    pub(super) victim_first: bool,
}

/// Stages a pair for each family, with 1, 2 and 10 shared backends, the victim created before and after the culprit,
/// and each value of the case's own axis. Each pair has a namespace and backend ports of its own.
pub(super) async fn pairs<How: Copy>(
    cx: &Context,
    hows: &[(How, &'static str)],
) -> Result<Vec<Pair<How>>, Halt> {
    let mut points = Vec::new();
    for family in cx.families() {
        for (how, name) in hows {
            for shared in SHARED {
                for victim_first in [true, false] {
                    points.push(Point {
                        family,
                        how: *how,
                        name,
                        shared,
                        victim_first,
                    });
                }
            }
        }
    }
    staged(cx, cx.axes().choose(points, Point::axis)).await
}

impl<How> Point<How> {
    pub(super) fn axis(&self) -> String {
        let Self {
            family,
            name,
            shared,
            victim_first,
            ..
        } = self;
        let age = if *victim_first {
            "victim older"
        } else {
            "victim younger"
        };
        let mut axis = format!("{family}, {shared} shared, {age}");
        if !name.is_empty() {
            axis += &format!(", {name}");
        }
        axis
    }
}

/// Stages a pair for each of these combinations.
pub(super) async fn staged<How>(cx: &Context, points: Vec<Point<How>>) -> Result<Vec<Pair<How>>, Halt> {
    cx.phase("staging: culprit and victim list the same backends");
    let namespace = cx.namespace().await?;
    let all = backends(
        cx,
        &namespace,
        points.len(),
        points.iter().map(|point| point.shared),
    )
    .await?;
    let mut pairs = Vec::new();
    for (at, point) in points.into_iter().enumerate() {
        let axis = point.axis();
        let Point {
            family,
            how,
            shared,
            victim_first,
            ..
        } = point;
        let (namespace, shared) = (cx.namespace().await?, some(&all, at, shared));
        let wanted = |service| Wanted {
            axis: &axis,
            family,
            namespace: &namespace,
            service,
            slice: service,
            target: target(at),
            backends: &shared,
        };
        let (culprit, victim);
        if victim_first {
            victim = Holder::make(cx, &wanted(VICTIM)).await?;
            culprit = Holder::make(cx, &wanted(CULPRIT)).await?;
        } else {
            culprit = Holder::make(cx, &wanted(CULPRIT)).await?;
            victim = Holder::make(cx, &wanted(VICTIM)).await?;
        }
        pairs.push(Pair {
            culprit,
            victim,
            shared,
            how,
        });
    }
    Ok(pairs)
}
