//! Fewer steps that still show a difference: delta debugging (Zeller and Hildebrandt, 2002), within a budget of tries.

use crate::{state::State, step::Step};

/// A part of a step, which another one can do without: one of its writes, or the whole. With the step's number.
pub type Part = (usize, Step);

/// The parts of steps.
#[must_use]
pub fn parts(steps: &[Step]) -> Vec<Part> {
    let of = |(number, step): (usize, &Step)| -> Vec<Part> {
        let parts: Vec<Step> = match step {
            Step::Write(changes) => changes.iter().map(|one| Step::Write(vec![one.clone()])).collect(),
            Step::Chaos(actions) => actions.iter().map(|one| Step::Chaos(vec![one.clone()])).collect(),
            one => vec![one.clone()],
        };
        parts.into_iter().map(|part| (number, part)).collect()
    };
    steps.iter().enumerate().flat_map(of).collect()
}

/// The steps that parts make.
#[must_use]
pub fn whole(parts: &[Part]) -> Vec<Step> {
    numbered(parts).into_iter().map(|(_, step)| step).collect()
}

fn numbered(parts: &[Part]) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for (number, part) in parts {
        match (all.last_mut().filter(|(last, _)| last == number), part) {
            (Some((_, Step::Write(changes))), Step::Write(more)) => changes.extend(more.iter().cloned()),
            (Some((_, Step::Chaos(actions))), Step::Chaos(more)) => actions.extend(more.iter().cloned()),
            _ => all.push((*number, part.clone())),
        }
    }
    all
}

/// The parts of the steps that are valid in turn.
#[must_use]
pub fn sensible_parts(parts: &[Part]) -> Vec<Part> {
    let mut steps = numbered(parts);
    let mut state = State::default();
    steps.retain(|(_, step)| state.after(step).map(|next| state = next).is_some());
    let of = |(number, step): &Part| {
        self::parts(std::slice::from_ref(step))
            .into_iter()
            .map(|(_, part)| (*number, part))
            .collect::<Vec<_>>()
    };
    steps.iter().flat_map(of).collect()
}

/// The shortest steps found for which `shows` is true, as it is for all of them. `shows` is called at most `tries`
/// times. `fix` removes steps that are invalid without others. `guess` is tried first, unless it is empty: steps that probably
/// suffice.
pub async fn shrink<T: Clone>(
    steps: Vec<T>,
    guess: &[T],
    mut tries: usize,
    fix: impl Fn(&[T]) -> Vec<T>,
    mut shows: impl AsyncFnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut best = steps;
    let guess = fix(guess);
    if !guess.is_empty() && guess.len() < best.len() && tries > 0 {
        tries -= 1;
        if shows(&guess).await {
            best = guess;
        }
    }
    let mut parts = 2;
    while best.len() >= 2 && tries > 0 {
        let size = best.len().div_ceil(parts);
        let mut shorter = None;
        // From the end: late steps are rarely the cause of a difference, except the very last.
        for from in (0..best.len()).step_by(size).rev() {
            if tries == 0 {
                break;
            }
            tries -= 1;
            let mut without = best.clone();
            without.drain(from..(from + size).min(best.len()));
            let without = fix(&without);
            if shows(&without).await {
                shorter = Some(without);
                break;
            }
        }
        match shorter {
            Some(without) => {
                best = without;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(best.len()),
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{chaos::world::World, churn::writes};

    fn shrunk(all: u32, tries: usize, needed: &[u32]) -> (Vec<u32>, usize) {
        let asked = Cell::new(0);
        let shows = async |steps: &[u32]| {
            asked.set(asked.get() + 1);
            needed.iter().all(|one| steps.contains(one))
        };
        // An even number from 30 on needs its half.
        let fix = |steps: &[u32]| {
            let makes_sense = |one: &&u32| **one < 30 || **one % 2 == 1 || steps.contains(&(**one / 2));
            steps.iter().filter(makes_sense).copied().collect()
        };
        let shrinking = shrink((0..all).collect(), &[0, 5, 7], tries, fix, shows);
        let found = futures::executor::block_on(shrinking);
        (found, asked.get())
    }

    #[test]
    fn what_is_needed_is_left() {
        for needed in [&[7][..], &[0, 39], &[3, 4, 5], &[1, 20, 39], &[17, 34]] {
            let (found, _) = shrunk(40, 1000, needed);
            assert_eq!(found, needed);
        }
    }

    #[test]
    fn a_step_of_several_writes_is_left_with_those_that_are_needed() {
        let socket = |socket| Step::Close { socket };
        let burst = Step::Chaos(writes(&World::first()));
        let steps = [burst, socket(1), Step::Chaos(writes(&World::first()))];
        let all = parts(&steps);
        assert_eq!(all.len(), 31);
        assert_eq!(whole(&all), steps);
        let needed = [&all[2], &all[9]].map(Clone::clone);
        let shows = async |parts: &[Part]| needed.iter().all(|one| parts.contains(one));
        let found = futures::executor::block_on(shrink(all, &[], 100, sensible_parts, shows));
        let [Step::Chaos(actions)] = &whole(&found)[..] else {
            panic!("one step: {found:?}");
        };
        assert_eq!(actions.len(), 2);
    }

    #[test]
    fn it_ends_with_its_tries_and_what_is_left_shows_it() {
        for tries in [0, 1, 5, 10] {
            let (found, asked) = shrunk(40, tries, &[3, 30]);
            assert!(asked <= tries);
            assert!(found.contains(&3) && found.contains(&30));
        }
    }
}
