//! The schedule with fake labs and cases.

mod away;
mod clock;
mod fake;
mod room;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use fake::{Fake, Wanted};

fn verdicts(ended: &Ended) -> BTreeMap<&str, &'static str> {
    let reports = ended.reports.iter();
    reports
        .map(|(report, _)| (report.id.as_str(), report.verdict.name()))
        .collect()
}

/// The first cases of the catalogue of each kind, in its order.
fn some(together: usize, alone: usize) -> Vec<Case> {
    let of = |disruptive: bool, count: usize| {
        let cases = cases::ALL
            .iter()
            .filter(move |case| case.disruptive == disruptive);
        cases.take(count).map(|case| case.id).collect::<Vec<_>>()
    };
    let chosen = [of(false, together), of(true, alone)].concat();
    cases::ALL
        .iter()
        .copied()
        .filter(|case| chosen.contains(&case.id))
        .collect()
}

fn disruptive(cases: &[Case]) -> impl Iterator<Item = &'static str> {
    cases.iter().filter(|case| case.disruptive).map(|case| case.id)
}

fn shared(cases: &[Case]) -> impl Iterator<Item = &'static str> {
    cases.iter().filter(|case| !case.disruptive).map(|case| case.id)
}

#[test]
fn a_disruptive_case_has_a_lab_that_nobody_else_ever_has_and_all_others_share_one() {
    for (labs, jobs) in [(1, 1), (1, 6), (2, 1), (2, 3), (3, 6), (6, 6), (20, 20)] {
        for shuffled_by in [None, Some(1), Some(2)] {
            let (fake, cases) = (Fake::default(), some(6, 6));
            let wanted = Wanted {
                shuffled_by,
                ..Wanted::at_once(labs, jobs)
            };
            let ended = wanted.run(&fake, &cases);
            ended.down.unwrap();
            let of = |id| fake.stay(id).lab;
            let lone: BTreeSet<usize> = disruptive(&cases).map(of).collect();
            let together: BTreeSet<usize> = shared(&cases).map(of).collect();
            assert_eq!((lone.len(), together.len()), (6, 1), "{labs} labs, {jobs} jobs");
            assert!(lone.is_disjoint(&together));
        }
    }
}

#[test]
fn what_takes_longest_begins_first_and_all_end_soon() {
    let cases = some(4, 4);
    let (slow, others): (Vec<_>, Vec<_>) = cases
        .iter()
        .map(|case| case.id)
        .partition(|id| [shared(&cases).last(), disruptive(&cases).last()].contains(&Some(*id)));
    let fake = Fake {
        lasts: slow
            .iter()
            .map(|id| (*id, 60))
            .chain(others.iter().map(|id| (*id, 10)))
            .collect(),
        ..Fake::default()
    };
    let ended = Wanted::at_once(3, 3).run(&fake, &cases);
    assert!(
        ended
            .reports
            .iter()
            .all(|(report, _)| report.verdict == Verdict::Pass)
    );
    for id in slow {
        assert_eq!(fake.stay(id).began, 0, "{id}");
    }
    // The other cases run beside them, one at a time, for sixty seconds.
    assert_eq!(fake.stays().iter().map(|stay| stay.ended).max(), Some(60));
}

#[test]
fn with_one_lab_what_shares_it_comes_first_and_the_others_follow_one_by_one() {
    let (fake, cases) = (Fake::default(), some(3, 3));
    Wanted::at_once(1, 3).run(&fake, &cases).down.unwrap();
    assert!(shared(&cases).all(|id| fake.stay(id).began == 0));
    let lone: BTreeSet<u64> = disruptive(&cases).map(|id| fake.stay(id).began).collect();
    assert_eq!(lone, BTreeSet::from([1, 2, 3]));
}

#[test]
fn in_a_cluster_of_several_nodes_cases_that_need_one_have_one_each_and_others_have_all() {
    let (mut together, mut one, mut several) = (2, 6, 2);
    let mut cases = cases::ALL.to_vec();
    cases.retain(|case| {
        let left = match (case.disruptive, case.needs.nodes) {
            (false, _) => &mut together,
            (true, 1) => &mut one,
            (true, _) => &mut several,
        };
        let is_chosen = *left > 0;
        *left -= usize::from(is_chosen);
        is_chosen
    });
    let fake = Fake {
        lasts: cases.iter().map(|case| (case.id, 10)).collect(),
        parts: 3,
        ..Fake::default()
    };
    let ended = Wanted::at_once(1, 9).run(&fake, &cases);
    ended.down.as_ref().unwrap();
    assert!(verdicts(&ended).values().all(|verdict| *verdict == "pass"));
    assert!(shared(&cases).all(|id| fake.stay(id).began == 0));
    let mut beside: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for case in cases.iter().filter(|case| case.disruptive) {
        let began = fake.stay(case.id).began;
        assert!(began >= 10, "those that share it have ended");
        beside.entry(began).or_default().push(case.needs.nodes);
    }
    let mut each: Vec<Vec<usize>> = beside.into_values().collect();
    each.sort();
    assert_eq!(each, [vec![1, 1, 1], vec![1, 1, 1], vec![2], vec![2]]);
}

#[test]
fn a_lab_that_dies_takes_its_own_cases_and_is_replaced() {
    let cases = some(6, 2);
    let deadly = shared(&cases).next().unwrap();
    let lone = disruptive(&cases).next().unwrap();
    let mut lasts: BTreeMap<_, _> = cases.iter().map(|case| (case.id, 10)).collect();
    lasts.insert(deadly, 11);
    lasts.insert(lone, 5);
    let fake = Fake {
        lasts,
        deadly: BTreeSet::from([deadly, lone]),
        ..Fake::default()
    };
    // Two at once in the shared lab: the deadly case with another that ends as the lab dies, and the next one, which is
    // still running.
    let ended = Wanted::at_once(2, 3).run(&fake, &cases);
    let why = ended.down.as_ref().unwrap_err().to_string();
    assert!(
        why.contains("was dead"),
        "a lab that can't be taken down is told: {why}"
    );
    let first = fake.stay(deadly);
    for (id, verdict) in verdicts(&ended) {
        let stay = fake.stay(id);
        let died = (stay.lab == first.lab && stay.ended >= first.ended) || id == lone;
        assert_eq!(verdict, if died { "inconclusive" } else { "pass" }, "{stay:?}");
    }
    let labs: BTreeSet<usize> = shared(&cases).map(|id| fake.stay(id).lab).collect();
    assert_eq!(labs.len(), 2, "one in its place");
}

#[test]
fn cases_whose_lab_does_not_come_up_are_inconclusive_and_say_why() {
    let cases = some(3, 2);
    let deadly = shared(&cases).next().unwrap();
    let fake = Fake {
        deadly: BTreeSet::from([deadly]),
        none_from: Some(1),
        ..Fake::default()
    };
    let ended = Wanted::at_once(1, 1).run(&fake, &cases);
    let ran: Vec<_> = fake.stays().iter().map(|stay| stay.case).collect();
    for (report, _) in &ended.reports {
        assert_eq!(report.verdict.name(), "inconclusive");
        let said = report.verdict.why().contains("no lab came up for it: no room");
        assert_eq!(said, !ran.contains(&report.id.as_str()), "{}", report.verdict);
    }
    assert!(ran.contains(&deadly) && ran.len() < cases.len(), "{ran:?}");
}

#[test]
fn after_a_failure_nothing_begins_and_what_has_begun_ends() {
    let cases = some(3, 3);
    let failing = disruptive(&cases).next().unwrap();
    let mut lasts: BTreeMap<_, _> = cases.iter().map(|case| (case.id, 5)).collect();
    let beside = shared(&cases).next().unwrap();
    lasts.extend([(failing, 10), (beside, 20)]);
    let fake = Fake {
        lasts,
        failing: BTreeSet::from([failing]),
        ..Fake::default()
    };
    let wanted = Wanted {
        fail_fast: true,
        ..Wanted::at_once(2, 2)
    };
    let ended = wanted.run(&fake, &cases);
    ended.down.unwrap();
    let ran: BTreeSet<_> = fake.stays().iter().map(|stay| stay.case).collect();
    assert_eq!(ran, BTreeSet::from([failing, beside]));
    for (report, _) in &ended.reports {
        if !ran.contains(report.id.as_str()) {
            let why = report.verdict.why();
            assert!(why.contains(failing) && why.contains("--fail-fast"), "{why}");
        }
    }
}

#[test]
fn an_interruption_begins_nothing_more_and_takes_every_lab_down() {
    let (fake, cases) = (Fake::default(), some(4, 4));
    let wanted = Wanted::at_once(3, 3);
    wanted.interrupted.cancel();
    let ended = wanted.run(&fake, &cases);
    ended.down.unwrap();
    assert!(fake.stays().is_empty());
    assert!(
        ended
            .reports
            .iter()
            .all(|(report, _)| report.verdict.why().contains("interrupted"))
    );
}

#[test]
fn the_same_verdicts_are_the_same_report_whatever_the_schedule() {
    let cases = some(6, 6);
    let failing: BTreeSet<_> = [shared(&cases).nth(2), disruptive(&cases).nth(1)]
        .into_iter()
        .flatten()
        .collect();
    let mut seen = BTreeSet::new();
    for (labs, jobs, shuffled_by) in [(1, 1, None), (2, 2, Some(3)), (6, 6, None), (6, 2, Some(4))] {
        let fake = Fake {
            failing: failing.clone(),
            ..Fake::default()
        };
        let wanted = Wanted {
            shuffled_by,
            ..Wanted::at_once(labs, jobs)
        };
        let ended = wanted.run(&fake, &cases);
        let pairs = ended
            .reports
            .iter()
            .map(|(report, _)| (report.id.clone(), report.verdict.name()));
        seen.insert(pairs.collect::<Vec<_>>());
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[test]
fn where_nothing_runs_the_lab_that_was_asked_is_taken_down() {
    let fake = Fake::default();
    Wanted::at_once(2, 2).run(&fake, &[]).down.unwrap();
}

/// Every second case of each kind is inconclusive this often, and the first of the others fails.
fn busy(cases: &[Case], times: usize) -> Fake {
    Fake {
        undecided: cases.iter().step_by(2).map(|case| (case.id, times)).collect(),
        failing: cases
            .iter()
            .skip(1)
            .step_by(2)
            .take(1)
            .map(|case| case.id)
            .collect(),
        out: Some(tempfile::tempdir().unwrap()),
        ..Fake::default()
    }
}

#[test]
fn what_is_inconclusive_is_tried_again_and_both_tries_are_told() {
    let cases = some(4, 4);
    for (labs, jobs) in [(1, 1), (3, 2)] {
        let mut fake = busy(&cases, 1);
        // Two of eight may be tried again.
        fake.undecided = fake.undecided.into_iter().skip(1).take(2).collect();
        let ended = Wanted::at_once(labs, jobs).run(&fake, &cases);
        ended.down.unwrap();
        for (report, _) in &ended.reports {
            let tries: Vec<_> = fake
                .stays()
                .into_iter()
                .filter(|stay| stay.case == report.id)
                .collect();
            if !fake.undecided.contains_key(report.id.as_str()) {
                assert_eq!(
                    (tries.len(), report.undecided.len()),
                    (1, 0),
                    "{}: one that failed, too",
                    report.id
                );
                continue;
            }
            assert_eq!((tries.len(), &report.verdict), (2, &Verdict::Pass));
            let [first] = &report.undecided[..] else {
                panic!("{:?}", report.undecided);
            };
            assert_eq!(first.why, "busy 0");
            let read = |folder: &Option<std::path::PathBuf>| {
                std::fs::read_to_string(folder.as_ref().unwrap().join("try")).unwrap()
            };
            assert_eq!(
                (read(&first.evidence).as_str(), read(&report.evidence).as_str()),
                ("0", "1")
            );
            let case = cases.iter().find(|case| case.id == report.id).unwrap();
            if case.disruptive {
                assert_ne!(tries[0].lab, tries[1].lab, "each try has a lab of its own");
            }
        }
    }
}

#[test]
fn no_more_than_a_quarter_is_tried_again_and_none_more_often_than_asked() {
    let cases = some(4, 4);
    for (tries, again, each) in [(1, 0, 0), (2, 2, 1), (4, 2, 3)] {
        let fake = busy(&cases, 9);
        let wanted = Wanted {
            tries,
            ..Wanted::at_once(2, 2)
        };
        let ended = wanted.run(&fake, &cases);
        let counts: Vec<usize> = ended
            .reports
            .iter()
            .map(|(report, _)| report.undecided.len())
            .filter(|count| *count > 0)
            .collect();
        assert_eq!(counts, vec![each; again], "{tries} tries");
        let undecided = verdicts(&ended)
            .into_values()
            .filter(|name| *name == "inconclusive");
        assert_eq!(undecided.count(), 4, "the last try decides");
    }
}

#[test]
fn nothing_is_tried_again_after_the_run_has_ended_and_what_an_earlier_run_left_goes() {
    let cases = some(2, 2);
    let first = shared(&cases).next().unwrap();
    let fake = Fake {
        undecided: BTreeMap::from([(first, 1)]),
        failing: shared(&cases).skip(1).collect(),
        // This case begins first.
        lasts: BTreeMap::from([(first, 1_000_000)]),
        out: Some(tempfile::tempdir().unwrap()),
        ..Fake::default()
    };
    let earlier = fake.folder().join("evidence").join(format!("{first}.2"));
    std::fs::create_dir_all(&earlier).unwrap();
    let wanted = Wanted {
        fail_fast: true,
        ..Wanted::at_once(1, 1)
    };
    let ended = wanted.run(&fake, &cases);
    let (report, _) = ended
        .reports
        .iter()
        .find(|(report, _)| report.id == first)
        .unwrap();
    assert!(report.verdict.why().contains("--fail-fast"), "{}", report.verdict);
    assert!(!earlier.exists());
    let whys: Vec<&str> = report
        .undecided
        .iter()
        .map(|earlier| earlier.why.as_str())
        .collect();
    assert_eq!(whys, ["busy 0"], "its only try is told");
}
