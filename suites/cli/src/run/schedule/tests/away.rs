//! An API server that goes away.

use super::*;

/// Cases of ten seconds each, side by side, with an API server that is away at these times.
fn tries(cases: &[Case], jobs: usize, away: &[(u64, u64)], failing: Option<&'static str>) -> (Ended, Fake) {
    let fake = Fake {
        lasts: cases.iter().map(|case| (case.id, 10)).collect(),
        out: Some(tempfile::tempdir().unwrap()),
        away: away.to_vec(),
        failing: failing.into_iter().collect(),
        ..Fake::default()
    };
    let wanted = Wanted {
        tries: 1,
        ..Wanted::at_once(1, jobs)
    };
    (wanted.run(&fake, cases), fake)
}

fn runs(fake: &Fake, id: &str) -> usize {
    fake.stays().iter().filter(|stay| stay.case == id).count()
}

#[test]
fn all_cases_that_were_under_way_are_tried_again_side_by_side_and_none_is_lost() {
    let cases = some(6, 2);
    let (ended, fake) = tries(&cases, 6, &[(5, 60)], None);
    ended.down.as_ref().unwrap();
    assert!(
        verdicts(&ended).values().all(|verdict| *verdict == "pass"),
        "{:?}",
        verdicts(&ended)
    );
    for case in &cases {
        let expected = if case.disruptive { 1 } else { 2 };
        assert_eq!(runs(&fake, case.id), expected, "{}", case.id);
        let (report, _) = ended
            .reports
            .iter()
            .find(|(report, _)| report.id == case.id)
            .unwrap();
        assert_eq!(report.undecided.len(), expected - 1, "each try is told");
    }
    // Six cases at once begin side by side, and again when the API server is back; disruptive ones follow.
    let begun: BTreeSet<u64> = shared(&cases)
        .flat_map(|id| fake.stays().into_iter().filter(move |stay| stay.case == id))
        .map(|stay| stay.began)
        .collect();
    assert_eq!(begun, BTreeSet::from([0, 65]));
}

#[test]
fn one_that_failed_meanwhile_is_not_tried_again() {
    let cases = some(3, 0);
    let failing = cases[0].id;
    let (ended, fake) = tries(&cases, 3, &[(5, 60)], Some(failing));
    assert_eq!(verdicts(&ended)[failing], "fail");
    assert_eq!(runs(&fake, failing), 1);
}

#[test]
fn one_whose_api_server_goes_away_all_the_time_is_given_up() {
    let cases = some(1, 0);
    let often: Vec<(u64, u64)> = (0..9).map(|number| (5 + number * 10, 1)).collect();
    let (ended, fake) = tries(&cases, 1, &often, None);
    let (report, _) = &ended.reports[0];
    assert_eq!(
        (report.verdict.name(), report.undecided.len()),
        ("inconclusive", 3)
    );
    assert_eq!(runs(&fake, cases[0].id), 4);
}
