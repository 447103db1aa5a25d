//! The agent's own way, which no plan says: what is kept depends on what was there before.
//!
//! A frontend is kept only if it is one of a port that is to be kept, and only while it has no backend; what is kept
//! is what served its port last. It must be kept if nothing but that has changed.

use std::collections::{BTreeMap, BTreeSet};

use reference_agent::{
    endpoint_address::TransportAddress,
    names::ObjectName,
    plan::{PortId, Set},
    resolve,
    testing::api_state::Fresh,
};

use reference_agent::maps::Contents;

/// What there was at a frontend after the last step.
#[derive(Clone, Debug)]
struct Before {
    owner: Option<ObjectName>,
    port: PortId,
    set: Set,
    /// Whether it was one of a port that is to be kept.
    keep: bool,
    /// Who served it last.
    last: BTreeSet<TransportAddress>,
}

/// What there was at frontends: one that was not to be kept may be so after a restart.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    before: BTreeMap<TransportAddress, Before>,
}

/// How much has happened since the last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Since {
    /// One event, or a restart that sees what the agent before it was told.
    One,
    /// Several at once, or a restart that sees otherwise: a Service may have gone and come again.
    Several,
}

impl Keeping {
    /// Panics unless what is kept is right.
    pub(super) fn check(&mut self, fresh: &Fresh, contents: &Contents, since: Since) {
        let mut kept = resolve::kept(contents);
        let mut now = BTreeMap::new();
        for (id, plan) in &fresh.plan {
            let owner = fresh.model.name(*id).cloned();
            for (port_id, port) in &plan.ports {
                for (frontend, planned) in &port.frontends {
                    let found = kept.remove(frontend);
                    let keep = port.keep;
                    assert!(keep || found.is_none(), "nobody asked to keep {frontend}");
                    let set = planned.internal;
                    let serving: BTreeSet<_> = port.set(set).iter().map(|one| one.address).collect();
                    let before = self.before.get(frontend);
                    let last = if serving.is_empty() && keep {
                        let same = before.is_some_and(|before| {
                            (&before.owner, &before.port, before.set, before.keep)
                                == (&owner, port_id, set, true)
                        });
                        let must = same && set == Set::Cluster && since != Since::Several;
                        // What is kept is the port's: a frontend that it did not have before meets it, too; of its two
                        // sets, one of which is part of the other, that which it had last.
                        let is_its = |(one, before): &(&TransportAddress, &Before)| {
                            port.frontends.contains_key(one)
                                || (&before.owner, &before.port) == (&owner, port_id)
                        };
                        let lasts = self.before.iter().filter(is_its);
                        let lasts: Vec<_> = lasts.map(|(_, before)| &before.last).collect();
                        let may = found
                            .as_ref()
                            .is_none_or(|found| lasts.iter().any(|last| found.is_subset(last)));
                        assert!(
                            may && (found.is_some() || !must),
                            "{frontend}: kept is {found:?}, last were {lasts:?}, must be kept: {must}"
                        );
                        found
                    } else {
                        assert_eq!(found, None, "{frontend} is served, and kept");
                        Some(serving).filter(|serving| !serving.is_empty())
                    };
                    if let Some(last) = last {
                        let owner = owner.clone();
                        let port = port_id.clone();
                        now.insert(
                            *frontend,
                            Before {
                                owner,
                                port,
                                set,
                                keep,
                                last,
                            },
                        );
                    }
                }
            }
        }
        assert_eq!(kept, BTreeMap::new(), "kept, and no frontends of the plan");
        self.before = now;
    }
}
