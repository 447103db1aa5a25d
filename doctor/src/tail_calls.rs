//! Which programs are reached by tail calls, and from where: pure.
//!
//! A program that uses an array of programs may go on as any program in it, and that one by its own arrays, and so on (the
//! kernel stops after 33 of them: `MAX_TAIL_CALL_CNT`). Such programs run though they are attached nowhere. Which of the
//! entries a program really jumps to, only its instructions say: all are taken to be reached.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::report::{Entry, Place, ProgArray, TailCalled};

/// What tail calls reach.
#[derive(Debug)]
pub(super) struct TailCalls<'a> {
    arrays: &'a [ProgArray],
    /// Every program that is reached from an entry, by the fewest jumps.
    reached: BTreeMap<u32, TailCalled>,
    /// The entries, and what is reached from them.
    running: BTreeSet<u32>,
}

impl<'a> TailCalls<'a> {
    /// From attached programs, the first of several places of one counting.
    pub(super) fn from<'e>(
        entries: impl IntoIterator<Item = (u32, &'e Place)>,
        arrays: &'a [ProgArray],
    ) -> Self {
        let mut used_by: BTreeMap<u32, Vec<&ProgArray>> = BTreeMap::new();
        for array in arrays {
            for caller in &array.callers {
                used_by.entry(*caller).or_default().push(array);
            }
        }
        let mut running = BTreeSet::new();
        let mut next: VecDeque<(u32, Entry)> = VecDeque::new();
        for (program, place) in entries {
            if running.insert(program) {
                let place = place.clone();
                next.push_back((program, Entry { program, place }));
            }
        }
        let mut reached = BTreeMap::new();
        // Each array is gone through once: the program that jumps through it first has fewest jumps behind it.
        let mut seen = BTreeSet::new();
        while let Some((caller, entry)) = next.pop_front() {
            for array in used_by.get(&caller).into_iter().flatten() {
                if !seen.insert(array.map) {
                    continue;
                }
                for program in &array.programs {
                    if running.insert(*program) {
                        let called = TailCalled {
                            caller,
                            map: array.map,
                            from: Some(entry.clone()),
                        };
                        reached.insert(*program, called);
                        next.push_back((*program, entry.clone()));
                    }
                }
            }
        }
        Self {
            arrays,
            reached,
            running,
        }
    }

    /// How a program that is attached nowhere is called; `None`: it is in no array that a program uses.
    pub(super) fn of(&self, program: u32) -> Option<TailCalled> {
        self.reached.get(&program).cloned().or_else(|| {
            let mut arrays = self
                .arrays
                .iter()
                .filter(|array| array.programs.contains(&program));
            arrays.find_map(|array| {
                Some(TailCalled {
                    caller: *array.callers.first()?,
                    map: array.map,
                    from: None,
                })
            })
        })
    }

    /// Every program that is reached and is no entry itself, by id.
    pub(super) fn reached(&self) -> impl Iterator<Item = u32> {
        self.reached.keys().copied()
    }

    /// Whether a program runs: it is attached, or reached from one that is.
    pub(super) fn runs(&self, program: u32) -> bool {
        self.running.contains(&program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::at;

    fn array(map: u32, callers: &[u32], programs: &[u32]) -> ProgArray {
        ProgArray {
            map,
            callers: callers.to_vec(),
            programs: programs.to_vec(),
        }
    }

    /// Of a called program: its caller, the array, the attached program.
    type Called = (u32, u32, Option<u32>);

    #[track_caller]
    fn check(attached: &[u32], arrays: &[ProgArray], expected: &[(u32, Option<Called>)]) {
        let place = at("/sys/fs/cgroup", "connect4");
        let calls = TailCalls::from(attached.iter().map(|program| (*program, &place)), arrays);
        for (program, expected) in expected {
            let found = calls.of(*program);
            let found = found.map(|one| (one.caller, one.map, one.from.map(|entry| entry.program)));
            assert_eq!(found, *expected, "program {program}");
            let in_use = attached.contains(program) || matches!(expected, Some((_, _, Some(_))));
            assert_eq!(calls.runs(*program), in_use, "program {program}");
        }
    }

    #[test]
    fn what_an_attached_program_jumps_to_is_reached_and_what_that_jumps_to_too() {
        let arrays = [array(70, &[1], &[2, 3]), array(71, &[3], &[4])];
        check(
            &[1],
            &arrays,
            &[
                (2, Some((1, 70, Some(1)))),
                (3, Some((1, 70, Some(1)))),
                (4, Some((3, 71, Some(1)))),
                (5, None),
            ],
        );
    }

    #[test]
    fn loops_end_and_the_fewest_jumps_are_told() {
        // 2 and 3 jump to each other and to themselves; 3 is also called by 9, which is attached.
        let arrays = [array(70, &[1, 2, 3], &[2]), array(71, &[2, 3, 9], &[2, 3])];
        check(
            &[1, 9],
            &arrays,
            &[(2, Some((1, 70, Some(1)))), (3, Some((9, 71, Some(9))))],
        );
    }

    #[test]
    fn callers_that_are_attached_nowhere_are_told_apart_from_none() {
        let arrays = [array(70, &[5], &[5, 6]), array(71, &[], &[7])];
        check(
            &[1],
            &arrays,
            &[(5, Some((5, 70, None))), (6, Some((5, 70, None))), (7, None)],
        );
    }

    #[test]
    fn a_program_in_a_used_and_an_unused_array_is_called_through_the_used_one() {
        let arrays = [array(70, &[], &[2]), array(71, &[1], &[2])];
        check(&[1], &arrays, &[(2, Some((1, 71, Some(1))))]);
        check(&[], &arrays, &[(2, Some((1, 71, None)))]);
    }
}
