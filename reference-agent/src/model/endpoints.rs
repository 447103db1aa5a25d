//! Which Services have which endpoints' addresses, and which of those are a Service's cluster IP.

use std::{collections::BTreeSet, net::IpAddr};

use super::{Dirty, holders::Holders};
use crate::{hash::HashMap, names::ObjectId};

/// Addresses of endpoints, and cluster IPs.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    holders: Holders,
    /// How many Services have each as a cluster IP.
    cluster_ips: HashMap<IpAddr, u32>,
    /// Those that are both: hardly ever any, so that nobody has to look up every endpoint.
    refused: BTreeSet<IpAddr>,
}

impl Endpoints {
    /// Whether there are none, and no cluster IPs either.
    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.cluster_ips.is_empty() && self.refused.is_empty()
    }

    /// Endpoints' addresses that can't be backends, because a backend is never translated again.
    pub(super) fn refused(&self) -> &BTreeSet<IpAddr> {
        &self.refused
    }

    /// Services that have an endpoint at an address.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = ObjectId> {
        self.holders.of(address)
    }

    /// A slice of a Service has other addresses than before. What both begin and end with is passed over: of most
    /// updates little is left.
    pub(super) fn replace(&mut self, service: ObjectId, before: &[IpAddr], after: &[IpAddr]) {
        let begin = before.iter().zip(after).take_while(|(a, b)| a == b).count();
        let (before, after) = (&before[begin..], &after[begin..]);
        let backwards = before.iter().rev().zip(after.iter().rev());
        let end = backwards.take_while(|(a, b)| a == b).count();
        // Held first: what merely moved is at no time gone.
        for &address in &after[..after.len() - end] {
            self.holders.hold(address, service);
            if self.cluster_ips.contains_key(&address) {
                self.refused.insert(address);
            }
        }
        for &address in &before[..before.len() - end] {
            self.holders.release(address, service);
            if !self.refused.is_empty() && !self.holders.is_held(address) {
                self.refused.remove(&address);
            }
        }
    }

    /// A Service has other cluster IPs than before. Whose endpoints can be backends no more, or can be again, is
    /// marked.
    pub(super) fn cluster_ips(&mut self, before: &[IpAddr], after: &[IpAddr], dirty: &mut Dirty) {
        for &address in after {
            *self.cluster_ips.entry(address).or_default() += 1;
            if self.holders.is_held(address) && self.refused.insert(address) {
                dirty.extend(self.holders.of(address));
            }
        }
        for &address in before {
            let Some(count) = self.cluster_ips.get_mut(&address) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.cluster_ips.remove(&address);
                if self.refused.remove(&address) {
                    dirty.extend(self.holders.of(address));
                }
            }
        }
    }
}
