//! Endpoint changes at a rate, among many Services: how long each takes from its arrival to the maps.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};
use reference_agent::{
    control::{Control, Planner},
    decode,
    maps::kernel::KernelMaps,
    model::Event,
};

use crate::{
    cold, objects,
    place::{self, Place},
    report::{Row, Rows, percentile},
};

/// So many Services with a backend each, of which so many change in a second, for so long.
pub(crate) fn measure(services: usize, rate: usize, seconds: u64) -> anyhow::Result<Vec<Row>> {
    let place = Place::new()?;
    let mut control = place.control()?;
    cold::fill(&mut control, services, 1)?;
    let changes = rate * usize::try_from(seconds)?;
    let cpu = cpu_time()?;
    let begin = Instant::now();
    let mut latencies = drive(
        &mut control,
        services,
        changes,
        Duration::from_secs(1) / u32::try_from(rate)?,
    )?;
    let elapsed = begin.elapsed();
    let cpu = cpu_time()?.saturating_sub(cpu);
    cold::expect_no_troubles(&control)?;
    ensure!(
        latencies.len() == changes,
        "{} changes were written",
        latencies.len()
    );
    latencies.sort_by(f64::total_cmp);

    let mut rows = Rows::of(format!(
        "{rate} endpoint changes/s, {services} Services, {seconds} s"
    ));
    rows.add("arrival to maps, p50", percentile(&latencies, 500), "ms");
    rows.add("arrival to maps, p99", percentile(&latencies, 990), "ms");
    rows.add("arrival to maps, longest", percentile(&latencies, 1000), "ms");
    rows.add("changes carried", changes as f64 / elapsed.as_secs_f64(), "1/s");
    rows.add(
        "CPU, decoding included",
        100.0 * cpu.as_secs_f64() / elapsed.as_secs_f64(),
        "% of one",
    );
    rows.add_with_aim("RSS", place::resident()?.0, "MiB", Some(150.0));
    Ok(rows.rows)
}

/// The control loop, in short: what has arrived is carried into the maps together. Milliseconds of each change.
fn drive(
    control: &mut Control<Planner, KernelMaps>,
    services: usize,
    changes: usize,
    interval: Duration,
) -> anyhow::Result<Vec<f64>> {
    let begin = Instant::now();
    let mut latencies = Vec::with_capacity(changes);
    let arrival = |change: usize| begin + interval * u32::try_from(change).unwrap_or(u32::MAX);
    let mut told = 0;
    while told < changes {
        let next = arrival(told).min(control.deadline().unwrap_or_else(|| arrival(told)));
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let first = told;
        let now = Instant::now();
        while told < changes && arrival(told) <= now {
            control.apply(change(told, services)?);
            told += 1;
        }
        control.reconcile(Instant::now());
        drop(control.take_changes());
        let done = Instant::now();
        latencies.extend((first..told).map(|change| (done - arrival(change)).as_secs_f64() * 1000.0));
    }
    Ok(latencies)
}

/// The backend of one of the Services is another one: here and there, by a prime.
fn change(number: usize, services: usize) -> anyhow::Result<Event> {
    let service = number * 7919 % services;
    let object = objects::slice(service, 0, &[services + number]);
    let slice = decode::slice(&object).map_err(|defect| anyhow::anyhow!("{defect}"))?;
    Ok(Event::SliceApplied(slice.object))
}

fn cpu_time() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(microseconds.try_into()?))
}
