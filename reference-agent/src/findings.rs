//! Findings: parts of objects that can't be used, with reasons and messages.

use std::{collections::BTreeMap, fmt};

/// Why an object, or a part of it, is not in the maps. Its name is in metrics and Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A part that can't be read: wrong type, unknown enumeration value.
    Malformed,
    /// An address that can't be a frontend.
    FrontendRefused,
    /// A frontend that another Service owns.
    FrontendTaken,
    /// A port that repeats another one of the same object.
    PortRepeated,
    /// A range of clients that can't be read: it admits no client.
    RangeRefused,
    /// An address that can't be a backend.
    EndpointRefused,
    /// More endpoints than a set of backends can have.
    EndpointsClipped,
    /// More ranges of cluster IPs than fit into the datapath.
    ServiceRangesClipped,
    /// An EndpointSlice that names no Service.
    ServiceUnknown,
    /// A map is full, or the kernel refused the write.
    NotWritten,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A problem of an object that its owner should know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Its kind.
    pub reason: Reason,
    /// The field, what was expected, what was found, and what follows.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

/// Findings of one object and reason that are reported one by one; the others are counted.
pub const NAMED: usize = 10;

/// Collects the findings of one object: at most [`NAMED`] + 1 of each reason.
#[derive(Debug, Default)]
pub struct Findings {
    named: Vec<Finding>,
    counts: BTreeMap<Reason, usize>,
}

impl Findings {
    /// Adds a finding.
    pub fn add(&mut self, reason: Reason, message: String) {
        let count = self.counts.entry(reason).or_default();
        *count += 1;
        if *count <= NAMED {
            self.named.push(Finding { reason, message });
        }
    }

    /// All findings, sorted, each once.
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
    fn few_findings_are_reported_one_by_one_and_many_are_counted() {
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
