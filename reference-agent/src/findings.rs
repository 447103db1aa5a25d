//! What can't be used, and was left out or clipped: reasons and sentences.

use std::{collections::BTreeMap, fmt};

/// Why a part of an object, or a whole one, is not in the maps. Displays as its own name, which metrics and Events
/// carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A part that can't be read: wrong type, unknown enumeration value.
    Malformed,
    /// An address that can't be a frontend's.
    FrontendRefused,
    /// A frontend that another Service has.
    FrontendTaken,
    /// A port that repeats another one of the same object.
    PortRepeated,
    /// A range of clients that can't be read: it admits nobody.
    RangeRefused,
    /// An address that can't be a backend's.
    EndpointRefused,
    /// More endpoints than a set of backends can have.
    EndpointsClipped,
    /// More ranges of cluster IPs than the datapath has room for.
    ServiceRangesClipped,
    /// An EndpointSlice that names no Service.
    ServiceUnknown,
    /// A map is full, or the kernel said no.
    NotWritten,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Something about a Service or an EndpointSlice that its owner should know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Its kind.
    pub reason: Reason,
    /// A sentence that names the field and says what was made of it.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

/// Findings of one object with the same reason that are told one by one; of the others only the number is.
pub const NAMED: usize = 10;

/// Collects what is found about one object: however much is wrong with it, at most [`NAMED`] + 1 findings of each
/// reason come of it.
#[derive(Debug, Default)]
pub struct Findings {
    named: Vec<Finding>,
    counts: BTreeMap<Reason, usize>,
}

impl Findings {
    /// One more.
    pub fn add(&mut self, reason: Reason, message: String) {
        let count = self.counts.entry(reason).or_default();
        *count += 1;
        if *count <= NAMED {
            self.named.push(Finding { reason, message });
        }
    }

    /// All of them, sorted, each once.
    pub fn finish(self) -> Vec<Finding> {
        let mut all = self.named;
        for (reason, count) in self.counts.into_iter().filter(|(_, count)| *count > NAMED) {
            let message = format!("{} more of this kind", count - NAMED);
            all.push(Finding { reason, message });
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_findings_are_told_one_by_one_and_of_many_the_number() {
        let mut findings = Findings::default();
        for number in 0..NAMED + 7 {
            findings.add(Reason::Malformed, format!("part {number}"));
        }
        findings.add(Reason::PortRepeated, "TCP 80".to_owned());
        let all: Vec<_> = findings.finish().iter().map(ToString::to_string).collect();
        assert_eq!(all.len(), NAMED + 2);
        assert_eq!(all[0], "Malformed: 7 more of this kind");
        assert_eq!(all[1], "Malformed: part 0");
        assert_eq!(all[NAMED + 1], "PortRepeated: TCP 80");
    }
}
