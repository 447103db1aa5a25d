//! The least maps and packet that still differ.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    compare::{Difference, Surroundings, judge},
    kernel::{Kernel, KernelError, Observation, Shot, moved},
};
use crate::model::{Outcome, State};

/// Runs that shrinking may take.
const RUNS: usize = 4_000;
/// How often a packet is tried: what is chosen at random may have to be chosen again.
const TRIES: usize = 8;

/// One packet that was not treated as it should have been.
#[derive(Clone, Debug)]
pub(super) struct Mismatch {
    /// The maps before.
    pub(super) state: State,
    /// When.
    pub(super) now: u32,
    pub(super) shot: Shot,
    pub(super) outcome: Outcome,
    pub(super) observation: Observation,
    pub(super) differences: Vec<Difference>,
}

/// Takes entries out of the maps and bytes off the packet, as long as the same things differ.
pub(super) fn shrink(
    kernel: &mut Kernel,
    around: Surroundings<'_>,
    mismatch: Mismatch,
) -> Result<Mismatch, KernelError> {
    let mut runs = 0;
    let mut least = mismatch;
    loop {
        let mut smaller = None;
        for (state, shot) in candidates(&least) {
            runs += TRIES;
            if runs > RUNS {
                return Ok(least);
            }
            smaller = again(kernel, around, &least, &state, &shot)?;
            if smaller.is_some() {
                break;
            }
        }
        match smaller {
            Some(smaller) => least = smaller,
            None => return Ok(least),
        }
    }
}

/// The same mismatch with a packet and maps that may be others; `None` if it is not there again.
pub(super) fn again(
    kernel: &mut Kernel,
    around: Surroundings<'_>,
    mismatch: &Mismatch,
    state: &State,
    shot: &Shot,
) -> Result<Option<Mismatch>, KernelError> {
    for _ in 0..TRIES {
        let tried = attempt(kernel, around, state, mismatch.now, shot)?;
        if let Some(tried) = tried.filter(|tried| alike(tried, mismatch)) {
            return Ok(Some(tried));
        }
    }
    Ok(None)
}

/// A packet on maps, at another time; `None` if nothing differs.
fn attempt(
    kernel: &mut Kernel,
    around: Surroundings<'_>,
    state: &State,
    then: u32,
    shot: &Shot,
) -> Result<Option<Mismatch>, KernelError> {
    let now = Kernel::now()?;
    let state = moved(state, then, now);
    kernel.set(&state)?;
    let observation = match kernel.run(shot) {
        Ok(observation) => observation,
        // Too short for a packet now.
        Err(KernelError::Loader(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (outcome, differences) = judge(around, &state, shot, &observation, |now| kernel.rejects(now));
    let mismatch = Mismatch {
        state,
        now,
        shot: shot.clone(),
        outcome,
        observation,
        differences,
    };
    Ok((!mismatch.differences.is_empty()).then_some(mismatch))
}

fn alike(a: &Mismatch, b: &Mismatch) -> bool {
    let what = |mismatch: &Mismatch| {
        mismatch
            .differences
            .iter()
            .map(|difference| difference.what)
            .collect::<BTreeSet<_>>()
    };
    a.outcome.counter == b.outcome.counter
        && a.observation.counter == b.observation.counter
        && what(a) == what(b)
}

fn candidates(mismatch: &Mismatch) -> Vec<(State, Shot)> {
    let Mismatch { state, shot, .. } = mismatch;
    let mut fewer = Vec::new();
    halves(state, &mut fewer);
    without_each(state, &mut fewer, |state| &mut state.flows);
    without_each(state, &mut fewer, |state| &mut state.affinity);
    without_each(state, &mut fewer, |state| &mut state.fragments);
    without_each(state, &mut fewer, |state| &mut state.frontends);
    without_each(state, &mut fewer, |state| &mut state.services);
    without_each(state, &mut fewer, |state| &mut state.slots);
    without_each(state, &mut fewer, |state| &mut state.backends);
    without_each(state, &mut fewer, |state| &mut state.addresses);
    for range in &state.sources {
        let mut smaller = state.clone();
        smaller.sources.remove(range);
        fewer.push(smaller);
    }
    let mut all: Vec<_> = fewer.into_iter().map(|state| (state, shot.clone())).collect();
    let length = shot.frame.len();
    // The kernel refuses what is no more than a link's header.
    let shorter = [
        length / 2,
        length - 64.min(length),
        length - 8.min(length),
        length - 1,
    ];
    for length in shorter.into_iter().filter(|length| *length > 14) {
        let frame = shot.frame[..length].to_vec();
        all.push((
            state.clone(),
            Shot {
                frame,
                ..shot.clone()
            },
        ));
    }
    if shot.own {
        let own = false;
        all.push((state.clone(), Shot { own, ..shot.clone() }));
    }
    if shot.gso_size != 0 {
        let gso_size = 0;
        all.push((
            state.clone(),
            Shot {
                gso_size,
                ..shot.clone()
            },
        ));
    }
    all
}

/// CONNTRACK may hold hundreds: first a half of it, and the other.
fn halves(state: &State, fewer: &mut Vec<State>) {
    let middle = state.flows.len() / 2;
    if middle == 0 {
        return;
    }
    for first in [true, false] {
        let mut smaller = state.clone();
        let half = state.flows.iter().enumerate();
        smaller.flows = half
            .filter(|(index, _)| (*index < middle) == first)
            .map(|(_, (key, flow))| (*key, *flow))
            .collect();
        fewer.push(smaller);
    }
}

/// The state without each of a map's entries in turn.
fn without_each<K: Ord + Copy, V>(
    state: &State,
    fewer: &mut Vec<State>,
    map: fn(&mut State) -> &mut BTreeMap<K, V>,
) {
    let keys: Vec<K> = map(&mut state.clone()).keys().copied().collect();
    for key in keys {
        let mut smaller = state.clone();
        map(&mut smaller).remove(&key);
        fewer.push(smaller);
    }
}
