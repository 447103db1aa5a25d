//! Many Services from nothing to the last map entry.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use reference_agent::{
    control::{Control, Planner},
    decode,
    maps::{LbMaps as _, Map, kernel::KernelMaps},
    model::Event,
};

use crate::{
    objects::{self, PER_SLICE},
    place::{self, Place},
    plain,
    report::{Row, Rows},
};

/// What each part took.
#[derive(Default)]
pub(crate) struct Parts {
    decode: Duration,
    model: Duration,
    write: Duration,
}

/// How many backends are distinct at most: BACKENDS has room for 65,535. Where there are more, some Services share them.
const DISTINCT: usize = 50_000;

/// Services with so many backends each.
pub(crate) fn measure(services: usize, backends: usize) -> anyhow::Result<Vec<Row>> {
    let place = Place::new()?;
    let (before, _) = place::resident()?;
    let mut control = place.control()?;
    let parts = fill(&mut control, services, backends)?;
    let (after, most) = place::resident()?;

    let contents = control.reconciler().maps().contents()?;
    ensure!(
        contents.frontends.len() == services && contents.slots.len() == services * backends,
        "{} frontends and {} slots were written",
        contents.frontends.len(),
        contents.slots.len()
    );
    let plain = plain::walk(&contents);
    drop(contents);
    let begin = Instant::now();
    let planned = control.desired().plan();
    let plan = begin.elapsed();
    ensure!(
        planned.len() >= services,
        "{} Services are planned",
        planned.len()
    );
    drop(planned);
    let (longest, whole) = audit(&mut control)?;
    drop(control);
    let begin = Instant::now();
    let mut adopting = place.control()?;
    let read = begin.elapsed();
    let again = fill(&mut adopting, services, backends)?;
    drop(adopting);

    let seconds = |part: Duration| part.as_secs_f64();
    let path = seconds(parts.model + parts.write);
    let mut rows = Rows::of(format!("{services} Services × {backends}, cold"));
    let aim = (services == 50_000).then_some(0.5);
    rows.add_with_aim("model, plan, write: events to the last map entry", path, "s", aim);
    rows.add("  model", seconds(parts.model), "s");
    rows.add("  plan and write", seconds(parts.write), "s");
    rows.add(
        "  of which plan (measured apart, from scratch)",
        seconds(plan),
        "s",
    );
    let restart = seconds(read + again.model + again.write);
    rows.add("restart that adopts the maps: the same path", restart, "s");
    rows.add(
        "  of which reading the maps, before the first event",
        seconds(read),
        "s",
    );
    rows.add("decode (from parsed JSON), before", seconds(parts.decode), "s");
    rows.add("plain hash maps, filled and walked", seconds(plain), "s");
    rows.add("ratio of the path to plain hash maps", path / seconds(plain), "");
    rows.add_with_aim("RSS", after, "MiB", Some(150.0));
    rows.add("RSS before the first object", before, "MiB");
    rows.add("RSS at most", most, "MiB");
    rows.add("audit, all maps", seconds(whole) * 1000.0, "ms");
    rows.add_with_aim("audit, longest call", seconds(longest) * 1000.0, "ms", Some(50.0));
    Ok(rows.rows)
}

/// Tells all objects, ends the lists, and writes.
pub(crate) fn fill(
    control: &mut Control<Planner, KernelMaps>,
    services: usize,
    backends: usize,
) -> anyhow::Result<Parts> {
    let mut parts = Parts::default();
    for number in 0..services {
        let object = objects::service(number);
        let begin = Instant::now();
        let decoded = decode::service(&object).map_err(|defect| anyhow::anyhow!("{defect}"))?;
        parts.decode += begin.elapsed();
        tell(control, Event::ServiceApplied(decoded.object), &mut parts);
        let endpoints = number * backends..(number + 1) * backends;
        let endpoints: Vec<usize> = endpoints.map(|endpoint| endpoint % DISTINCT).collect();
        for (index, endpoints) in endpoints.chunks(PER_SLICE).enumerate() {
            let object = objects::slice(number, index, endpoints);
            let begin = Instant::now();
            let decoded = decode::slice(&object).map_err(|defect| anyhow::anyhow!("{defect}"))?;
            parts.decode += begin.elapsed();
            tell(control, Event::SliceApplied(decoded.object), &mut parts);
        }
    }
    for event in place::synced() {
        tell(control, event, &mut parts);
    }
    let begin = Instant::now();
    control.reconcile(begin);
    parts.write = begin.elapsed();
    expect_no_troubles(control)?;
    Ok(parts)
}

fn tell(control: &mut Control<Planner, KernelMaps>, event: Event, parts: &mut Parts) {
    let begin = Instant::now();
    control.apply(event);
    parts.model += begin.elapsed();
}

/// Nothing has failed.
pub(crate) fn expect_no_troubles(control: &Control<Planner, KernelMaps>) -> anyhow::Result<()> {
    if let Some(trouble) = control.troubles().first() {
        bail!("{trouble}");
    }
    Ok(())
}

/// One round: its longest call, and all of them.
fn audit(control: &mut Control<Planner, KernelMaps>) -> anyhow::Result<(Duration, Duration)> {
    let (mut longest, mut whole) = (Duration::ZERO, Duration::ZERO);
    for _ in Map::ALL {
        let begin = Instant::now();
        let drift = control.audit().context("failed to audit the maps")?;
        let elapsed = begin.elapsed();
        ensure!(
            drift.missing + drift.wrong + drift.foreign == 0,
            "nobody has touched the maps, and {drift:?}"
        );
        (longest, whole) = (longest.max(elapsed), whole + elapsed);
    }
    Ok((longest, whole))
}
