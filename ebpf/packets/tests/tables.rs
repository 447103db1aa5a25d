//! Every row of the tables, on the programs in the kernel.

use std::collections::BTreeSet;

use lb_abi::{COUNTERS, Counter, Meta};
use lb_packets::{
    rows,
    stage::{Stage, StageError},
    table::Row,
    test_node::TestNode,
};

/// With fewer rows than this, a table has been lost.
const LEAST_ROWS: usize = 1000;
/// Fewer packets than this, cut off or with an entry missing, and they were not all tried.
const LEAST_CUT_OFF: usize = 150_000;
const LEAST_TORN: usize = 10_000;
/// Of rows that do not hold, this many are shown in full.
const SHOWN: usize = 5;

/// Packet counters that no row reaches, and why.
const UNREACHED: [(Counter, &str); 3] = [
    (
        Counter::DroppedFlowsFull,
        "an LRU map makes room: only the kernel's own lack of memory fills it",
    ),
    (
        Counter::DroppedRewrite,
        "the kernel refuses no write to what has been read",
    ),
    (
        Counter::DroppedRejectLimit,
        "depends on the second and the processor: tests/many.rs",
    ),
];

/// The first counter of packets; those before it are sockets'.
const FIRST_OF_PACKETS: Counter = Counter::PacketPassed;

/// Does something with every row, which tries so many packets, and shows those that do not hold.
fn every_row(least: usize, play: impl Fn(&mut Stage, &Row) -> Result<usize, StageError>) {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let _node = TestNode::enter().expect("a node");
    let mut stage = Stage::new().expect("the programs");
    let rows = rows::all();
    let mut tried = 0;
    let mut failures = Vec::new();
    for row in &rows {
        match play(&mut stage, row) {
            Ok(packets) => tried += packets,
            Err(StageError::Mismatch(mismatch)) => failures.push((row, mismatch)),
            Err(other) => panic!("\"{}\": {other:?}", row.sentence),
        }
    }
    for (_, mismatch) in failures.iter().take(SHOWN) {
        eprintln!("{mismatch}\n");
    }
    let says: Vec<&str> = failures.iter().map(|(row, _)| row.sentence.as_str()).collect();
    assert!(
        failures.is_empty(),
        "{} of {} rows do not hold:\n{}",
        says.len(),
        rows.len(),
        says.join("\n")
    );
    assert!(tried >= least, "{tried} packets were tried, {least} expected");
}

#[test]
fn every_row_holds() {
    every_row(LEAST_ROWS, |stage, row| {
        stage.play(row)?;
        Ok(row.steps.len())
    });
}

#[test]
fn no_packet_that_is_cut_off_anywhere_is_rewritten_halfway() {
    every_row(LEAST_CUT_OFF, Stage::play_cut_off);
}

#[test]
fn no_entry_that_is_missing_sends_a_packet_to_the_wrong_place() {
    every_row(LEAST_TORN, Stage::play_torn);
}

#[test]
fn there_are_enough_rows_and_each_says_something_of_its_own() {
    let rows = rows::all();
    assert!(rows.len() >= LEAST_ROWS, "{} rows", rows.len());
    let mut said = BTreeSet::new();
    for row in &rows {
        assert!(said.insert(&row.sentence), "two rows say \"{}\"", row.sentence);
        assert!(!row.steps.is_empty(), "\"{}\" has no packet", row.sentence);
        let outdated = row.given.meta != Meta::CURRENT;
        for step in &row.steps {
            assert_eq!(
                step.counter.is_none(),
                outdated,
                "\"{}\" does not say what is counted",
                row.sentence
            );
        }
    }
    println!("{} rows", rows.len());
}

#[test]
fn every_packet_counter_is_reached_by_a_row() {
    let reached: BTreeSet<Counter> = rows::all()
        .iter()
        .flat_map(|row| &row.steps)
        .flat_map(|step| [step.counter, step.reused.then_some(Counter::SnatReused)])
        .flatten()
        .collect();
    for counter in &Counter::ALL[FIRST_OF_PACKETS as usize..COUNTERS as usize] {
        let excused = UNREACHED.iter().any(|(unreached, _)| unreached == counter);
        assert_ne!(
            reached.contains(counter),
            excused,
            "{}: reached, or named with a reason why not",
            counter.name()
        );
    }
}
