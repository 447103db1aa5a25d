//! What a packet costs, by `BPF_PROG_TEST_RUN`.
//!
//! The kernel runs a program again and again on the same packet, each time on what the time before has left of it. So
//! that each time is the same path, a translated packet is one that is translated again: flows lead from one frontend
//! to another and back, and a packet that opens a flow is sent to a backend that is the next frontend. What the
//! programs have counted is compared with what they should have: a figure that is not of its path is no figure.
//!
//! A packet that is answered is another one afterwards. It runs once, and of the time that the kernel reports, its own
//! reading of the clock goes off: the difference between a packet that is left alone once and many times.

mod paths;

use anyhow::{Context as _, ensure};
use lb_abi::{Config, Flow, Service, Tuple};
use lb_loader::{Detached, Input};
use lb_packets::{
    table::Entry,
    test_node::{TestNode, V4, V6},
};
use nix::time::{ClockId, clock_gettime};

use self::paths::Path;
use crate::{
    sample::Sample,
    services::{self, MANY},
};

/// Entries of CONNTRACK: more than any path has at a time.
const CONNTRACK: u32 = 65_536;
/// How often a path is measured, each time as many packets as it repeats.
const CALLS: u32 = 200;
/// The same, of packets that run once.
const SINGLE_CALLS: u32 = 2000;

/// What a path costs.
pub(crate) struct Cost {
    /// Which path, at which hook.
    pub(crate) name: &'static str,
    pub(crate) hook: &'static str,
    pub(crate) family: &'static str,
    /// With no other service ports in the maps than its own.
    pub(crate) alone: Sample,
    /// Among [`MANY`].
    pub(crate) among_many: Sample,
    /// Packets of which each number in the samples is the mean.
    pub(crate) repeat: u32,
    /// What it should cost at most, in nanoseconds.
    pub(crate) aim: Option<u64>,
}

/// Measures every path.
pub(crate) fn measure() -> anyhow::Result<Vec<Cost>> {
    let _node = TestNode::enter()?;
    let alone = Detached::load(CONNTRACK)?;
    let among_many = Detached::load(CONNTRACK)?;
    services::fill(among_many.maps(), MANY)?;
    let both = [&alone, &among_many];
    for detached in both {
        let node = Config {
            node_v4: V4.node.into(),
            node_v6: V6.node.into(),
            snat_first: 61_000,
            snat_last: 65_535,
            ..Config::NONE
        };
        detached.maps().config.put(&node)?;
    }
    let paths = paths::all();
    let (nothing, once) = paths::nothing();
    let [clock_alone, clock_among_many] = clock(both, &nothing, &once)?;
    let mut costs = Vec::new();
    for path in &paths {
        let [alone, among_many] =
            samples(both, path).with_context(|| format!("{}, {}, {}", path.name, path.hook, path.family))?;
        let single = path.repeat == 1;
        let without = |sample: Sample, clock| if single { sample.without(clock) } else { sample };
        costs.push(Cost {
            name: path.name,
            hook: path.hook.name(),
            family: path.family,
            alone: without(alone, clock_alone),
            among_many: without(among_many, clock_among_many),
            repeat: path.repeat,
            aim: path.aim,
        });
    }
    Ok(costs)
}

/// What the kernel's reading of the clock adds to a packet that runs once.
fn clock(both: [&Detached; 2], nothing: &Path, once: &Path) -> anyhow::Result<[u64; 2]> {
    let [first, second] = samples(both, nothing)?;
    let [first_once, second_once] = samples(both, once)?;
    Ok([
        first_once.median().saturating_sub(first.median()),
        second_once.median().saturating_sub(second.median()),
    ])
}

/// Runs a path on both in turns.
fn samples(both: [&Detached; 2], path: &Path) -> anyhow::Result<[Sample; 2]> {
    for detached in both {
        put(detached, path, true)?;
    }
    let before = [counted(both[0], path)?, counted(both[1], path)?];
    let mut samples = [Sample::default(), Sample::default()];
    let calls = if path.repeat == 1 { SINGLE_CALLS } else { CALLS };
    for _ in 0..calls {
        for (detached, sample) in both.into_iter().zip(&mut samples) {
            let input = Input {
                packet: &path.packet,
                ifindex: path.device,
                own: false,
                gso_size: 0,
                repeat: path.repeat,
            };
            sample.add(detached.run(path.hook, &input)?.nanoseconds.into());
            if path.opens {
                forget_flows(detached)?;
            }
        }
    }
    for (detached, before) in both.into_iter().zip(before) {
        let seen = counted(detached, path)? - before;
        let expected = u64::from(calls) * u64::from(path.repeat);
        ensure!(
            seen == expected,
            "expected {expected} packets to count as {}, found {seen}: this is not the path that it is to be (build the \
             object anew: cargo xtask ebpf build)",
            path.counter.name()
        );
        put(detached, path, false)?;
        forget_flows(detached)?;
    }
    Ok(samples)
}

fn counted(detached: &Detached, path: &Path) -> anyhow::Result<u64> {
    Ok(detached.maps().counters()?.get(path.counter))
}

/// Puts what a path needs into the maps, or removes it.
fn put(detached: &Detached, path: &Path, there: bool) -> anyhow::Result<()> {
    let maps = detached.maps();
    for entry in &path.entries {
        match entry {
            Entry::Address(address, flags) if there => maps.addresses.put(address, flags)?,
            Entry::Address(address, _) => drop(maps.addresses.delete(address)?),
            Entry::Frontend(key, frontend) if there => maps.frontends.put(key, frontend)?,
            Entry::Frontend(key, _) => drop(maps.frontends.delete(key)?),
            Entry::Service(id, service) => {
                maps.services
                    .put(id, &if there { *service } else { Service::default() })?;
            }
            Entry::Slot(key, backend) if there => maps.slots.put(key, backend)?,
            Entry::Slot(key, _) => drop(maps.slots.delete(key)?),
            Entry::Backend(id, backend) if there => maps.backends.put(id, backend)?,
            Entry::Backend(id, _) => drop(maps.backends.delete(id)?),
            Entry::Connection(connection) if there => {
                for (tuple, flow) in connection.entries(now()?) {
                    maps.conntrack.put(&tuple, &flow)?;
                }
            }
            // All flows are forgotten after a path; and no path has the others.
            Entry::Connection(_) | Entry::Source(_) | Entry::Affinity(..) | Entry::Fragment(..) => {}
        }
    }
    Ok(())
}

fn forget_flows(detached: &Detached) -> anyhow::Result<()> {
    let flows = &detached.maps().conntrack;
    let entries: Vec<(Tuple, Flow)> = flows.entries()?;
    for (tuple, _) in entries {
        flows.delete(&tuple)?;
    }
    Ok(())
}

/// Seconds since the machine started, as the programs read them.
fn now() -> anyhow::Result<u32> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).context("failed to read the clock")?;
    u32::try_from(time.tv_sec()).context("this machine has been up for 136 years")
}
