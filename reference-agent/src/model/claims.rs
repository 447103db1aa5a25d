//! The owner of each frontend, among the Services that ask for it.

use std::collections::{BTreeSet, hash_map::Entry};

use super::{Dirty, Exposure, Frontend, Probe, Service, frontends, health_checks};
use crate::{
    endpoint_address::TransportAddress,
    hash::HashMap,
    names::{ObjectId, ObjectName},
};

/// A Service's claim to a frontend; the least one wins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) exposure: Exposure,
    pub(super) created: Age,
    pub(super) name: ObjectName,
    pub(super) service: ObjectId,
}

/// Oldest first; an object without a creation time is the youngest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Age {
    Since(i64),
    Unknown,
}

/// All claims, by frontend.
#[derive(Debug, Default)]
pub(super) struct Claims(HashMap<TransportAddress, Claimants>);

/// Most frontends have one claim, which takes no tree.
#[derive(Debug)]
enum Claimants {
    One(Claim),
    Several(BTreeSet<Claim>),
}

impl Claimants {
    fn first(&self) -> Option<&Claim> {
        match self {
            Self::One(claim) => Some(claim),
            Self::Several(claims) => claims.first(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Claim> {
        let (one, several) = match self {
            Self::One(claim) => (Some(claim), None),
            Self::Several(claims) => (None, Some(claims)),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }
}

impl Claims {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The claim that wins a frontend.
    pub(super) fn owner(&self, frontend: &TransportAddress) -> Option<&Claim> {
        self.0.get(frontend)?.first()
    }

    /// Replaces a Service's claim to a frontend; `None`: no claim. If the owner changes, all Services with a claim are
    /// marked, as the findings of those without the frontend name its owner.
    pub(super) fn replace(
        &mut self,
        frontend: TransportAddress,
        old: Option<&Claim>,
        new: Option<Claim>,
        dirty: &mut Dirty,
    ) {
        let before = self.owner(&frontend).map(|claim| claim.service);
        if let Some(claim) = new {
            self.add(frontend, claim);
        }
        if let Some(claim) = old {
            self.remove(&frontend, claim);
        }
        let claimants = self.0.get(&frontend);
        let after = claimants.and_then(Claimants::first).map(|claim| claim.service);
        if before != after {
            let claims = claimants.into_iter().flat_map(Claimants::iter);
            dirty.extend(before.into_iter().chain(claims.map(|claim| claim.service)));
        }
    }

    fn add(&mut self, frontend: TransportAddress, claim: Claim) {
        match self.0.entry(frontend) {
            Entry::Vacant(vacant) => _ = vacant.insert(Claimants::One(claim)),
            Entry::Occupied(mut occupied) => match occupied.get_mut() {
                Claimants::One(other) => {
                    let both = BTreeSet::from([other.clone(), claim]);
                    occupied.insert(Claimants::Several(both));
                }
                Claimants::Several(claims) => _ = claims.insert(claim),
            },
        }
    }

    fn remove(&mut self, frontend: &TransportAddress, claim: &Claim) {
        let Some(claimants) = self.0.get_mut(frontend) else {
            return;
        };
        let last = match claimants {
            Claimants::One(_) => {
                self.0.remove(frontend);
                return;
            }
            Claimants::Several(claims) => {
                claims.remove(claim);
                if claims.len() > 1 {
                    return;
                }
                claims.pop_first()
            }
        };
        if let Some(last) = last {
            *claimants = Claimants::One(last);
        }
    }
}

/// The claims of a Service, sorted by frontend.
pub(super) fn claims(id: ObjectId, service: &Service) -> Vec<(TransportAddress, Claim)> {
    let claim = |frontend: Frontend| {
        let claim = Claim {
            exposure: frontend.exposure,
            created: service.created.map_or(Age::Unknown, Age::Since),
            name: service.name.clone(),
            service: id,
        };
        (frontend.address, claim)
    };
    let checks = health_checks(service).map(|address| Frontend {
        address,
        exposure: Exposure::HealthCheck,
        port: 0,
    });
    let mut claims: Vec<_> = frontends(service)
        .0
        .into_iter()
        .chain(checks)
        .map(claim)
        .collect();
    claims.sort_unstable();
    claims
}

pub(super) fn find<'a>(
    claims: &'a [(TransportAddress, Claim)],
    frontend: &TransportAddress,
) -> Option<&'a Claim> {
    let index = claims.binary_search_by_key(frontend, |(one, _)| *one).ok()?;
    Some(&claims[index].1)
}

pub(super) fn probe_claim(probe: &Probe) -> (TransportAddress, Claim) {
    let claim = Claim {
        exposure: Exposure::Probe,
        created: Age::Unknown,
        name: ObjectName::new("", ""),
        service: ObjectId::NODE,
    };
    (probe.frontend, claim)
}
