//! One large Service that loses an endpoint, again and again.

use std::time::Instant;

use reference_agent::{decode, model::Event};

use crate::{
    cold,
    objects::{self, PER_SLICE},
    place::Place,
    report::{Row, Rows, percentile},
};

/// A Service with so many endpoints; one of them goes and comes back so many times.
pub(crate) fn measure(endpoints: usize, times: usize) -> anyhow::Result<Vec<Row>> {
    let place = Place::new()?;
    let mut control = place.control()?;
    cold::fill(&mut control, 1, endpoints)?;
    let mut written = Vec::with_capacity(times);
    let mut collected = Vec::with_capacity(times);
    for time in 0..times {
        // The last one of the first slice goes, or comes back.
        let present: Vec<usize> = (0..PER_SLICE - usize::from(time % 2 == 0)).collect();
        let object = objects::slice(0, 0, &present);
        let slice = decode::slice(&object).map_err(|defect| anyhow::anyhow!("{defect}"))?;
        let begin = Instant::now();
        control.apply(Event::SliceApplied(slice.object));
        control.reconcile(begin);
        written.push(begin.elapsed().as_secs_f64() * 1000.0);
        // What is left over goes later, or, of so many slots, at once.
        if let Some(deadline) = control.deadline() {
            let begin = Instant::now();
            control.reconcile(deadline);
            collected.push(begin.elapsed().as_secs_f64() * 1000.0);
        }
        cold::expect_no_troubles(&control)?;
    }
    let mut rows = Rows::of(format!("one Service × {endpoints}, losing one"));
    for (part, mut times) in [
        ("event to the last map entry", written),
        ("the old generation removed, where that waited", collected),
    ] {
        if times.is_empty() {
            continue;
        }
        times.sort_by(f64::total_cmp);
        rows.add(&format!("{part}, p50"), percentile(&times, 500), "ms");
        rows.add(&format!("{part}, p99"), percentile(&times, 990), "ms");
    }
    Ok(rows.rows)
}
