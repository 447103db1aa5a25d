//! The ranges that cluster IPs are from: what no Service has there is refused by the datapath.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use lb_abi::SERVICE_RANGES;

use super::objects::ServiceCidr;
use crate::transport::{Family, Range};

/// What is known of Service ranges.
#[derive(Debug, Default)]
pub(super) struct ServiceCidrs {
    /// By the command line; then the objects don't count.
    pub(super) given: Option<BTreeSet<Range>>,
    objects: BTreeMap<String, Vec<Range>>,
}

/// The Service ranges that the datapath has, and those for which it has no room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceRanges {
    /// At most [`SERVICE_RANGES`]: the largest, of equals the lowest, on every node the same.
    pub ranges: Vec<Range>,
    /// The others, by the name of their ServiceCIDR.
    pub left_out: BTreeMap<String, Vec<Range>>,
}

impl ServiceCidrs {
    /// A ServiceCIDR is like this, or is not there.
    pub(super) fn put(&mut self, name: String, object: Option<ServiceCidr>) {
        match object {
            Some(object) => _ = self.objects.insert(name, object.ranges),
            None => _ = self.objects.remove(&name),
        }
    }

    /// What the datapath should have.
    pub(super) fn ranges(&self) -> ServiceRanges {
        let objects = self.objects.iter().filter(|_| self.given.is_none());
        let of_objects = objects.clone().flat_map(|(_, ranges)| ranges);
        let all: BTreeSet<Range> = self.given.iter().flatten().chain(of_objects).copied().collect();
        let mut ranges: Vec<Range> = all.into_iter().collect();
        ranges.sort_by_key(|range| Reverse(host_bits(*range)));
        ranges.truncate(SERVICE_RANGES);
        let left_out = objects.filter_map(|(name, of)| {
            let left_out: Vec<_> = of
                .iter()
                .filter(|range| !ranges.contains(range))
                .copied()
                .collect();
            (!left_out.is_empty()).then(|| (name.clone(), left_out))
        });
        ServiceRanges {
            left_out: left_out.collect(),
            ranges,
        }
    }
}

/// Bits that tell its addresses apart.
const fn host_bits(range: Range) -> u8 {
    match range.family() {
        Family::V4 => 32 - range.length(),
        Family::V6 => 128 - range.length(),
    }
}
