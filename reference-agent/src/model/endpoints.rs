//! Endpoints' addresses with their Services, and those of them that are a cluster IP.

use std::{collections::BTreeSet, net::IpAddr};

use super::{Dirty, address_users::AddressUsers};
use crate::{hash::HashMap, names::ObjectId};

/// Addresses of endpoints, and cluster IPs.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    users: AddressUsers,
    /// How many Services have each cluster IP.
    cluster_ips: HashMap<IpAddr, u32>,
    /// Endpoints' addresses that are cluster IPs. There are hardly ever any.
    refused: BTreeSet<IpAddr>,
}

impl Endpoints {
    /// Whether there are none, and no cluster IPs either.
    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty() && self.cluster_ips.is_empty() && self.refused.is_empty()
    }

    /// Endpoints' addresses that can't be backends, because a backend is never translated again.
    pub(super) fn refused(&self) -> &BTreeSet<IpAddr> {
        &self.refused
    }

    /// Services that have an endpoint at an address.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = ObjectId> {
        self.users.of(address)
    }

    /// Replaces the addresses of a slice. The common beginning and end are passed over, which leaves little of most
    /// updates.
    pub(super) fn replace(&mut self, service: ObjectId, before: &[IpAddr], after: &[IpAddr]) {
        let begin = before.iter().zip(after).take_while(|(a, b)| a == b).count();
        let (before, after) = (&before[begin..], &after[begin..]);
        let backwards = before.iter().rev().zip(after.iter().rev());
        let end = backwards.take_while(|(a, b)| a == b).count();
        // Added first: an address that only moves within the slice is always used.
        for &address in &after[..after.len() - end] {
            self.users.add(address, service);
            if self.cluster_ips.contains_key(&address) {
                self.refused.insert(address);
            }
        }
        for &address in &before[..before.len() - end] {
            self.users.remove(address, service);
            if !self.refused.is_empty() && !self.users.is_used(address) {
                self.refused.remove(&address);
            }
        }
    }

    /// Replaces the cluster IPs of a Service. Services with endpoints at an address that becomes a cluster IP, or ceases
    /// to be, are marked.
    pub(super) fn cluster_ips(&mut self, before: &[IpAddr], after: &[IpAddr], dirty: &mut Dirty) {
        for &address in after {
            *self.cluster_ips.entry(address).or_default() += 1;
            if self.users.is_used(address) && self.refused.insert(address) {
                dirty.extend(self.users.of(address));
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
                    dirty.extend(self.users.of(address));
                }
            }
        }
    }
}
