//! The least maps and packet that still differ.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    compare::{Difference, Surroundings, judge},
    kernel::{Kernel, KernelError, Observation, Shot, moved},
};
use crate::model::{Outcome, State};

/// Runs that shrinking may take.
const RUNS: usize = 2_000;

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
            runs += 1;
            if runs > RUNS {
                return Ok(least);
            }
            let tried = attempt(kernel, around, &state, least.now, &shot)?;
            if let Some(tried) = tried.filter(|tried| alike(tried, &least)) {
                smaller = Some(tried);
                break;
            }
        }
        match smaller {
            Some(smaller) => least = smaller,
            None => return Ok(least),
        }
    }
}

/// The same packet on the same maps, at another time; `None` if nothing differs.
pub(super) fn attempt(
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
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut State)| {
        let mut state = state.clone();
        change(&mut state);
        all.push((state, shot.clone()));
    };
    with(&|state| state.flows.clear());
    for half in [false, true] {
        let middle = state.flows.len() / 2;
        with(&|state| {
            let keys: Vec<_> = state.flows.keys().copied().collect();
            for key in keys
                .iter()
                .enumerate()
                .filter(|(index, _)| (*index < middle) == half)
            {
                state.flows.remove(key.1);
            }
        });
    }
    without(&state.flows, |key| {
        with(&|state| {
            state.flows.remove(key);
        })
    });
    without(&state.affinity, |key| {
        with(&|state| {
            state.affinity.remove(key);
        })
    });
    without(&state.fragments, |key| {
        with(&|state| {
            state.fragments.remove(key);
        })
    });
    without(&state.frontends, |key| {
        with(&|state| {
            state.frontends.remove(key);
        })
    });
    without(&state.services, |key| {
        with(&|state| {
            state.services.remove(key);
        })
    });
    without(&state.slots, |key| {
        with(&|state| {
            state.slots.remove(key);
        })
    });
    without(&state.backends, |key| {
        with(&|state| {
            state.backends.remove(key);
        })
    });
    without(&state.addresses, |key| {
        with(&|state| {
            state.addresses.remove(key);
        })
    });
    for range in &state.sources {
        with(&|state| {
            state.sources.remove(range);
        });
    }
    let length = shot.frame.len();
    for shorter in [
        length / 2,
        length.saturating_sub(64),
        length.saturating_sub(8),
        length.saturating_sub(1),
    ] {
        let frame = shot.frame[..shorter].to_vec();
        all.push((
            state.clone(),
            Shot {
                frame,
                ..shot.clone()
            },
        ));
    }
    if shot.gso_size != 0 {
        all.push((
            state.clone(),
            Shot {
                gso_size: 0,
                ..shot.clone()
            },
        ));
    }
    // A frame that grows no smaller, or stays as it is, is none.
    all.retain(|(smaller, packet)| {
        packet.frame.len() > 14 && (packet != shot || size(smaller) < size(state))
    });
    all
}

fn without<K, V>(map: &BTreeMap<K, V>, mut each: impl FnMut(&K)) {
    for key in map.keys() {
        each(key);
    }
}

fn size(state: &State) -> usize {
    state.flows.len()
        + state.affinity.len()
        + state.fragments.len()
        + state.frontends.len()
        + state.services.len()
        + state.slots.len()
        + state.backends.len()
        + state.addresses.len()
        + state.sources.len()
}
