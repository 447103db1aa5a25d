//! Until when a node may go on with a state, and when its clients may get no answer.

use std::collections::BTreeSet;

use super::{Disturbance, Excuses, Tolerance};

/// The disturbances of the nodes that may handle an attempt.
pub(super) struct Window<'a> {
    disturbances: Vec<&'a Disturbance>,
    tolerance: Tolerance,
}

impl<'a> Window<'a> {
    /// Of these nodes; without any, each one's disturbances count.
    pub(super) fn new(all: &'a [Disturbance], nodes: &BTreeSet<&str>, tolerance: Tolerance) -> Self {
        let is_of = |one: &&Disturbance| match &one.node {
            Some(of) => nodes.is_empty() || nodes.contains(of.as_str()),
            None => true,
        };
        Self {
            disturbances: all.iter().filter(is_of).collect(),
            tolerance,
        }
    }

    /// Until when the state before a change may last, if the API has acknowledged the change then.
    pub(super) fn lasts_until(&self, done_us: u64) -> u64 {
        let mut until = done_us.saturating_add(self.tolerance.change_us);
        // Each disturbance is used once at most: those that begin before the end move it, which brings further ones in.
        let mut left: Vec<&Disturbance> = self.disturbances.clone();
        loop {
            let before = left.len();
            left.retain(|one| {
                let over = self.over(one);
                let counts = one.from_us <= until && over >= done_us;
                if counts {
                    until = until.max(over);
                }
                !counts
            });
            if left.len() == before {
                return until;
            }
        }
    }

    /// Whether connections may fail at some time from the first to the last.
    pub(super) fn loses(&self, from_us: u64, until_us: u64) -> bool {
        self.any(Excuses::Lost, from_us, until_us)
    }

    /// Whether nodes may go back to earlier states: they read the API anew.
    pub(super) fn is_disturbed(&self, from_us: u64, until_us: u64) -> bool {
        self.any(Excuses::Late, from_us, until_us)
    }

    fn any(&self, least: Excuses, from_us: u64, until_us: u64) -> bool {
        self.disturbances
            .iter()
            .any(|one| one.excuses >= least && one.from_us <= until_us && self.over(one) >= from_us)
    }

    fn over(&self, one: &Disturbance) -> u64 {
        one.until_us.saturating_add(self.tolerance.heal_us)
    }
}
