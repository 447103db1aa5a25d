//! Services that two generations of maps see differently.

use crate::{
    layout::{From, Question, Tables},
    map_bytes::{MapBytes, ReadError},
    report::{MOST_MISLED, Misled, Place},
    resolution::Answer,
};

/// What came of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Services that the first generation sends elsewhere than the second, or refuses; at most [`MOST_MISLED`].
    pub(super) misled: Vec<Misled>,
    /// How many there are in all.
    pub(super) in_all: usize,
    /// Services of the first generation.
    pub(super) compared: usize,
    /// Whether those were all.
    pub(super) complete: bool,
}

/// Compares what the maps of a stale program make of each service that they know with what the current ones do. A
/// service that the stale maps do not know is left to the current program, and misleads no client.
pub(super) fn compare(
    bytes: &dyn MapBytes,
    stale: &Tables,
    current: &Tables,
    place: &Place,
) -> Result<Comparison, ReadError> {
    let frontends = stale.frontends(bytes)?;
    let from = match place {
        Place::Cgroup { .. } | Place::Namespace { .. } => From::Socket,
        Place::Device { .. } => From::Outside,
    };
    let mut comparison = Comparison {
        compared: frontends.found.len(),
        complete: frontends.complete,
        ..Comparison::default()
    };
    for destination in frontends.found {
        let question = Question { destination, from };
        let (stale, current) = (stale.ask(bytes, &question), current.ask(bytes, &question));
        if agree(&stale, &current) {
            continue;
        }
        comparison.in_all += 1;
        if comparison.misled.len() < MOST_MISLED {
            comparison.misled.push(Misled {
                service: destination.to_string(),
                stale,
                current,
            });
        }
    }
    Ok(comparison)
}

/// Whether a client notices no difference. Reasons and conditions may be worded differently.
pub(crate) fn agree(one: &Answer, other: &Answer) -> bool {
    match (one, other) {
        (
            Answer::Backends { backends, holes, .. },
            Answer::Backends {
                backends: others,
                holes: others_holes,
                ..
            },
        ) => backends == others && (*holes > 0) == (*others_holes > 0),
        (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
    }
}
