//! What has failed to be written is not written again; the production agent does.

use std::time::{Duration, Instant};

use mutants::failures_forgotten::Forgetting;
use reference_agent::{
    control::{Control, Planner},
    maps::{LbMaps, faulty::FaultyMaps, memory::MemoryMaps},
    model::Event,
    resolve,
    testing::{
        objects::{address, service, slice},
        served, synced,
    },
};

/// More writes than there are.
const ALL: usize = 1_000;
/// After the longest wait until a write is tried again.
const LATER: Duration = Duration::from_secs(3_600);

/// Whether a Service is served that came while all writes failed, once none does any more.
fn is_served<M: LbMaps>(wrap: impl FnOnce(FaultyMaps<MemoryMaps>) -> M) -> bool {
    let mut maps = FaultyMaps::new(MemoryMaps::default());
    maps.script([true].repeat(ALL));
    let mut control = Control::new(Planner::default(), wrap(maps)).expect("maps in memory can be read");
    control.apply(Event::ServiceApplied(service("t/x", "10.96.0.1", &["TCP 80"])));
    control.apply(Event::SliceApplied(slice(
        "t/x",
        "x",
        &["TCP 8080"],
        &["10.0.0.1"],
    )));
    synced().into_iter().for_each(|event| control.apply(event));
    let now = Instant::now();
    for round in 0..ALL {
        control.reconcile(now + LATER * u32::try_from(round).unwrap_or(u32::MAX));
    }
    let contents = control
        .into_maps()
        .contents()
        .expect("maps in memory can be read");
    served(&resolve::resolve(&contents).0).contains_key(&address("TCP 10.96.0.1:80"))
}

#[test]
fn what_has_failed_is_not_written_again() {
    assert!(!is_served(Forgetting::new));
    assert!(is_served(|maps| maps), "by the production agent");
}
