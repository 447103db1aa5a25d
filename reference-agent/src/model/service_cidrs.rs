//! The ranges of cluster IPs: the datapath refuses addresses there that no Service has.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use lb_abi::SERVICE_RANGES;

use super::objects::ServiceCidr;
use crate::endpoint_address::{Family, Range};

/// ServiceCIDRs, and ranges of the command line.
#[derive(Debug, Default)]
pub(super) struct ServiceCidrs {
    /// From the command line, instead of the objects.
    pub(super) given: Option<BTreeSet<Range>>,
    objects: BTreeMap<String, Vec<Range>>,
}

/// The Service ranges that fit into the datapath, and the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceRanges {
    /// At most [`SERVICE_RANGES`]: the largest ones, and among equals the lowest, so that all nodes agree.
    pub ranges: Vec<Range>,
    /// The others, by the name of their ServiceCIDR.
    pub left_out: BTreeMap<String, Vec<Range>>,
}

impl ServiceCidrs {
    /// Puts or deletes a ServiceCIDR.
    pub(super) fn put(&mut self, name: String, object: Option<ServiceCidr>) {
        match object {
            Some(object) => _ = self.objects.insert(name, object.ranges),
            None => _ = self.objects.remove(&name),
        }
    }

    /// The ranges for the datapath.
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

/// How many bits a range leaves to its addresses.
const fn host_bits(range: Range) -> u8 {
    match range.family() {
        Family::V4 => 32 - range.length(),
        Family::V6 => 128 - range.length(),
    }
}
