//! What findings count: how many of how many, how these ended, and when.

use oracle::{
    breakage::Ending,
    check::Permitted,
    counted::{Counted, What},
    finding::{Finding, Weight},
    history::{Attempt, Served, Stage},
    trap::trap_untouched,
};

use crate::support::{B1, B2, answered, attempt, check, failed, many, refused, served, serves, silent};

/// Attempts that begin one after the other, a second apart.
fn in_turn(count: usize, make: impl Fn(usize) -> Attempt) -> Vec<Attempt> {
    let mut attempts = many(count, make);
    for (second, attempt) in (0..).zip(&mut attempts) {
        attempt.start_us += second * 1_000_000;
        attempt.end_us += second * 1_000_000;
    }
    attempts
}

fn counted(findings: &[Finding]) -> Counted {
    let violation = findings.iter().find(|one| one.weight == Weight::Violation);
    violation
        .and_then(|one| one.counted.clone())
        .expect("a violation that has counted")
}

fn endings(attempts: &[Attempt], logs: &[Served], permitted: Permitted) -> Vec<(Ending, usize)> {
    counted(&check(attempts, logs, permitted)).endings
}

#[test]
fn probes_outside_are_counted_with_their_time_and_their_endings() {
    let attempts = in_turn(40, |n| match n {
        10..20 => refused(n),
        20..23 => silent(n),
        _ => answered(n, B1),
    });
    let counted = counted(&check(&attempts, &[], serves(&[B1])));
    assert_eq!((counted.outside, counted.of), (13, 40));
    assert_eq!(counted.endings, [(Ending::Refused, 10), (Ending::Silent, 3)]);
    let seconds = [counted.first_us, counted.last_us, counted.until_us].map(|at| at / 1_000_000);
    assert_eq!(seconds, [11, 23, 40]);
    let dialled = counted.dialled.expect("probes dial");
    assert_eq!(
        (dialled.client.as_str(), dialled.target.as_str()),
        ("pod@node-1", "web")
    );
    let permitted = serves(&[B1]);
    assert_eq!(counted.what, What::Probes { permitted });
}

#[test]
fn an_ending_is_named_by_what_was_permitted_and_logged() {
    let late = |n| attempt(n, failed(Stage::Connect, "ECONNREFUSED"), 1300);
    assert_eq!(
        endings(&many(28, late), &[], Permitted::Refuse),
        [(Ending::RefusedLate, 28)]
    );
    assert_eq!(
        endings(&many(28, late), &[], serves(&[B1])),
        [(Ending::Refused, 28)]
    );
    let logs: Vec<Served> = (0..28).map(|n| served(n, B1)).collect();
    assert_eq!(
        endings(&many(28, silent), &logs, Permitted::None),
        [(Ending::Delivered, 28)]
    );
    let by = "b1/TCP/80".to_owned();
    assert_eq!(
        endings(&many(28, |n| answered(n, "b1/TCP/80")), &[], serves(&[B1])),
        [(Ending::Answered { by }, 28)]
    );
}

#[test]
fn backends_that_get_no_probe_are_named_with_the_time_of_all() {
    let attempts = in_turn(28, |n| answered(n, B1));
    let counted = counted(&check(&attempts, &[], serves(&[B1, B2])));
    assert_eq!(
        (counted.outside, counted.of, counted.endings),
        (0, 28, Vec::new())
    );
    assert_eq!((counted.first_us, counted.until_us), (1_000_000, 28_000_000));
    let (permitted, missing) = (serves(&[B1, B2]), vec![B2.to_owned()]);
    assert_eq!(counted.what, What::Unreached { permitted, missing });
}

#[test]
fn a_trap_counts_what_reached_it_by_an_answer_or_its_log() {
    let attempts = in_turn(5, |n| if n < 3 { answered(n, B2) } else { silent(n) });
    let finding = trap_untouched(&attempts, "b2", &[served(4, B2)]).expect("four reached it");
    let counted = counted(&[finding]);
    assert_eq!((counted.outside, counted.of), (4, 5));
    let by = B2.to_owned();
    assert_eq!(
        counted.endings,
        [(Ending::Answered { by }, 3), (Ending::Silent, 1)]
    );
}

#[test]
fn counts_are_read_as_they_were_written() {
    let findings = check(&many(28, refused), &[], serves(&[B1, B2]));
    let text = serde_json::to_string(&findings).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Finding>>(&text).unwrap(), findings);
    let without: Finding =
        serde_json::from_str(r#"{"weight":"undecided","subject":"s","expected":"e","found":"f","first":[]}"#)
            .unwrap();
    assert_eq!(without.counted, None, "a report of an earlier version");
}
