//! Fewer steps that still show a difference: delta debugging (Zeller and Hildebrandt, 2002), within a budget of tries.

use std::future::Future;

/// The fewest steps that were found for which `shows` is true: it is for all of them. `shows` is asked at most `tries` times, and
/// ends the search with an error.
///
/// # Errors
/// That of `shows`.
pub async fn shrink<T: Clone, E, F>(
    steps: Vec<T>,
    mut tries: usize,
    mut shows: impl FnMut(Vec<T>) -> F,
) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<bool, E>>,
{
    let mut best = steps;
    let mut parts = 2;
    while best.len() >= 2 && tries > 0 {
        let size = best.len().div_ceil(parts);
        let mut shorter = None;
        // From the end: what is last is seldom why something differs, but for the very last.
        for from in (0..best.len()).step_by(size).rev() {
            if tries == 0 {
                break;
            }
            tries -= 1;
            let mut without = best.clone();
            without.drain(from..(from + size).min(best.len()));
            if shows(without.clone()).await? {
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
    Ok(best)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, convert::Infallible, future::ready};

    use super::*;

    fn shrunk(all: u32, tries: usize, needed: &[u32]) -> (Vec<u32>, usize) {
        let asked = Cell::new(0);
        let shows = |steps: Vec<u32>| {
            asked.set(asked.get() + 1);
            ready(Ok::<_, Infallible>(needed.iter().all(|one| steps.contains(one))))
        };
        let shrinking = shrink((0..all).collect(), tries, shows);
        let Ok(found) = futures::executor::block_on(shrinking);
        (found, asked.get())
    }

    #[test]
    fn what_is_needed_is_left() {
        for needed in [&[7][..], &[0, 39], &[3, 4, 5], &[1, 20, 39]] {
            let (found, _) = shrunk(40, 1000, needed);
            assert_eq!(found, needed);
        }
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
