//! Source ports that cases give their clients, the first and the last: below those that kernels assign (from 32768), above
//! those of node programs.
//!
//! Clients on one host share its ports, also those of cases that run side by side. Each such case has a part of its own.

/// A part of all.
pub(crate) type Range = [u16; 2];

/// For a case that runs alone, whole or in halves.
pub(crate) const ALL: Range = [11_000, 29_999];
pub(crate) const FIRST_HALF: Range = [11_000, 20_499];
pub(crate) const SECOND_HALF: Range = [20_500, 29_999];
pub(crate) const SERVICE_CHANGE: Range = [11_000, 14_999];
pub(crate) const SERVICE_CHANGE_LB: Range = [15_000, 18_999];
pub(crate) const TERMINATING: Range = [19_000, 21_999];
pub(crate) const LB_STATUS: Range = [22_000, 29_999];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_side_by_side_share_no_source_port() {
        let mut parts = [SERVICE_CHANGE, SERVICE_CHANGE_LB, TERMINATING, LB_STATUS];
        parts.sort_unstable();
        assert!(
            parts.is_sorted_by(|[_, last], [first, _]| last < first),
            "{parts:?}"
        );
        assert!(
            parts
                .iter()
                .flatten()
                .all(|port| (ALL[0]..=ALL[1]).contains(port))
        );
    }
}
