//! Programs and model agree.

use lb_abi::Counter;
use lb_packets::calls::model;

use super::support::{CASES, isolated};

/// A counter of sockets that no case reaches, and why.
const UNREACHED: [(Counter, &str); 1] = [(
    Counter::ReverseFull,
    "REVERSE forgets the least recently used entry rather than refuse one",
)];

#[test]
fn programs_and_model_agree_on_cases_that_reach_every_counter_of_sockets() {
    isolated(|runner| {
        let report = runner.run(model::permitted);
        if let Some(failure) = &report.failure {
            panic!("{failure}");
        }
        assert_eq!(report.cases, CASES);
        println!(
            "{} calls of {CASES} cases in {:.1} s",
            report.calls,
            report.took.as_secs_f64()
        );
        for counter in Counter::ALL
            .into_iter()
            .filter(|counter| *counter < Counter::PacketPassed)
        {
            let reached = report.counters.get(&counter).copied().unwrap_or(0);
            match UNREACHED.iter().find(|(unreached, _)| *unreached == counter) {
                Some((_, why)) => assert_eq!(reached, 0, "{}: it is said that {why}", counter.name()),
                None => assert!(reached > 0, "no call counted {}", counter.name()),
            }
        }
    });
}
