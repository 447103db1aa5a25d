//! Programs and model agree, on every counter that packets can reach.

use std::{panic::resume_unwind, thread};

use lb_abi::Counter;
use lb_packets::{
    fuzz::{Limits, Report},
    model,
};

use super::support::{CASES, FIRST, run, run_each};

/// Counters of packets that no case reaches, and why.
const UNREACHED: [(Counter, &str); 2] = [
    (
        Counter::DroppedFlowsFull,
        "CONNTRACK forgets the least recently used entry rather than refuse one",
    ),
    (
        Counter::DroppedRewrite,
        "everything that is written has been read before, and test packets are in one piece",
    ),
];

/// Cases that have found something: `seed case`, and what it was.
const STORED: &str = include_str!("stored.txt");

#[test]
fn programs_and_model_agree_on_ten_thousand_cases_that_reach_every_counter() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    // On two nodes side by side: by itself it takes longer than all other tests of this program.
    let halves = [0, 1].map(|half| Limits {
        first: half * CASES / 2,
        cases: CASES / 2,
        ..FIRST
    });
    let reports = thread::scope(|scope| {
        halves
            .map(|half| scope.spawn(move || run(model::expected, &half)))
            .map(|half| half.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    for report in &reports {
        assert!(report.mismatch.is_none(), "{}", report.mismatch.as_ref().unwrap());
        assert_eq!(report.cases, CASES / 2);
    }
    let sent: u64 = reports.iter().map(|report| report.packets).sum();
    println!("{sent} packets of {CASES} cases");
    let packets = Counter::ALL
        .into_iter()
        .filter(|counter| *counter >= Counter::PacketPassed);
    // It counts beside what becomes of a packet, which is what is compared.
    for counter in packets.filter(|counter| *counter != Counter::SnatReused) {
        let in_one = |report: &Report| report.counters.get(&counter).copied().unwrap_or(0);
        let reached: u64 = reports.iter().map(in_one).sum();
        match UNREACHED.iter().find(|(unreached, _)| *unreached == counter) {
            Some((_, why)) => assert_eq!(reached, 0, "{}: it is said that {why}", counter.name()),
            None => assert!(reached > 0, "no packet counted {}", counter.name()),
        }
    }
}

#[test]
fn cases_that_have_found_something_agree() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let lines = STORED.lines().filter(|line| !line.starts_with('#'));
    let stored: Vec<Limits> = lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let mut number = || words.next().and_then(|word| word.parse().ok());
            let (Some(seed), Some(first)) = (number(), number()) else {
                panic!("{line:?}: a seed and the number of a case were expected");
            };
            Limits {
                seed,
                first,
                cases: 1,
                time: None,
            }
        })
        .collect();
    assert!(!stored.is_empty(), "no case is stored");
    for report in run_each(model::expected, &stored) {
        assert!(report.mismatch.is_none(), "{}", report.mismatch.unwrap());
        assert_eq!(report.cases, 1);
    }
}
