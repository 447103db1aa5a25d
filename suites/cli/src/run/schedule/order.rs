//! The order in which cases begin.

use std::cmp::Reverse;

use harness::case::Case;
use rand::{SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};

use super::super::previous_run::Durations;

/// The longest cases begin first, so that the end has no long one; or the seed decides.
pub(super) fn order(mut cases: Vec<Case>, shuffled_by: Option<u64>, durations: &Durations) -> Vec<Case> {
    match shuffled_by {
        None => cases.sort_by_cached_key(|case| Reverse(durations.expected(case))),
        Some(seed) => cases.shuffle(&mut StdRng::seed_from_u64(seed)),
    }
    cases
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        time::Duration,
    };

    use super::*;

    fn ids(cases: &[Case]) -> Vec<&'static str> {
        cases.iter().map(|case| case.id).collect()
    }

    #[test]
    fn what_takes_longest_begins_first() {
        let all = cases::ALL.to_vec();
        let unmeasured = order(all.clone(), None, &Durations::default());
        let expected = |case: &Case| Durations::default().expected(case);
        assert!(unmeasured.is_sorted_by(|a, b| expected(a) >= expected(b)));
        let shortest = unmeasured.last().unwrap();
        let took = BTreeMap::from([(shortest.id.to_owned(), Duration::from_secs(86_400))]);
        let measured = order(
            all,
            None,
            &Durations {
                cases: took,
                run: Duration::ZERO,
            },
        );
        assert_eq!(measured[0].id, shortest.id, "what was measured counts");
    }

    #[test]
    fn a_seed_decides_the_order() {
        let all = cases::ALL.to_vec();
        let by = |seed| ids(&order(all.clone(), Some(seed), &Durations::default()));
        let orders: BTreeSet<Vec<&str>> = (0..20).map(by).collect();
        assert!(orders.len() > 10, "{orders:?}");
        assert_eq!(by(7), by(7));
        assert_eq!(by(7).len(), cases::ALL.len());
    }
}
