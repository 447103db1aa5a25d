//! The agent treats every program at its cgroup and devices as its own.
//!
//! It detaches all that it has not attached: programs of a policy engine, of a bandwidth manager, of a monitor. Or only
//! those that use a map with the name of one of its own, because it finds maps by name.

use std::path::Path;

use doctor::{Found, Inventory, Place, Scope, inventory};
use lb_loader::{Layer, LoaderError, MapName, Ownership};
use reference_agent::datapath::Datapath;

use crate::{
    datapath_decorator::{Flaw, Flawed, Misjudges},
    stale_kept::CGROUP,
};

/// The production agent's datapath, which treats the programs in `others` as its own leftovers.
pub fn greedy<D: Datapath>(inner: D, others: impl Fn() -> Vec<Found> + Send) -> Flawed<D, impl Flaw<D>> {
    let misjudges = Misjudges(move |mut seen: Inventory| {
        let own = |found| Found {
            ownership: Ownership::Earlier,
            ..found
        };
        seen.attachments.extend(others().into_iter().map(own));
        seen
    });
    Flawed::new(inner, misjudges)
}

/// Programs of other owners at the node's cgroup and devices; empty if they can't be read.
pub fn others() -> Vec<Found> {
    let scope = Scope {
        cgroup: CGROUP.into(),
        bpffs: None,
        current: Vec::new(),
    };
    let here = |place: &Place| match place {
        Place::Cgroup { path, .. } => path.as_deref() == Some(Path::new(CGROUP)),
        Place::Device { name, .. } => name.is_some(),
        Place::Namespace { .. } => false,
    };
    let seen: Result<Inventory, LoaderError> = inventory(&scope);
    let attachments = seen.map_or_else(|_| Vec::new(), |seen| seen.attachments);
    attachments
        .into_iter()
        .filter(|found| found.ownership == Ownership::Foreign && here(&found.place))
        .collect()
}

/// The filters at devices among these: an agent that attaches by TCX removes every filter of the device's clsact, also
/// of other owners.
pub fn filters() -> Vec<Found> {
    let mut others = others();
    others.retain(|found| {
        matches!(
            found.place,
            Place::Device {
                layer: Layer::Clsact,
                ..
            }
        )
    });
    others
}

/// The programs among these that use a map with the name of one of the agent's.
pub fn namesakes() -> Vec<Found> {
    let mut others = others();
    others.retain(|found| found.program.maps.iter().any(|map| is_ours(&map.name)));
    others
}

/// Whether a map's name, as the kernel stores it, is that of one of the agent's.
fn is_ours(name: &str) -> bool {
    /// `BPF_OBJ_NAME_LEN`, without the NUL.
    const KEPT: usize = 15;
    MapName::PINNED
        .iter()
        .any(|ours| ours.name().get(..KEPT).unwrap_or(ours.name()) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_ours_as_far_as_the_kernel_keeps_it() {
        assert!(is_ours("FRONTENDS") && is_ours("META"));
        assert!(!is_ours("FRONT") && !is_ours("tally"));
    }
}
