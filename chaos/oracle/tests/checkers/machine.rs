//! Attempts that decide nothing: the machine, a client or a backend did not run in time, or the probes were too few.

use oracle::{
    check::{Expectation, Observed, Permitted, Stream},
    finding::Weight,
    history::{Attempt, Outcome, Served, Stage, Transport},
};
use rstest::rstest;

use crate::support::{B1, B2, TIMES, answer, answered, attempt, check, failed, many, serves, silent};

#[rstest]
#[case::too_few(serves(&[B1]), many(27, |n| answered(n, B1)), "only 27 of the 28")]
#[case::none_at_all(Permitted::Refuse, vec![], "only 0 of the 28")]
#[case::too_few_for_the_set(serves(&[B1, B2, "b3/TCP/8080"]),
    many(28, |n| answered(n, if n % 2 == 0 { B1 } else { B2 })), "too few to tell")]
#[case::the_clients_own_trouble(serves(&[B1]),
    many(29, |n| if n == 0 { attempt(n, failed(Stage::Socket, "EMFILE"), 0) } else { answered(n, B1) }),
    "1 of 29 failed on the machine (client or backend did not run in time, or no socket): 1 EMFILE")]
#[case::the_client_stood_still(serves(&[B1]),
    many(29, |n| if n == 0 { attempt(n, Outcome::Timeout { stage: Stage::Receive }, 5300) } else { answered(n, B1) }),
    "1 nothing, waiting in receive")]
fn what_the_history_cannot_decide_is_no_violation(
    #[case] permitted: Permitted,
    #[case] attempts: Vec<Attempt>,
    #[case] says: &str,
) {
    let findings = check(&attempts, &[], permitted);
    assert!(
        findings.iter().all(|finding| finding.weight == Weight::Undecided),
        "{findings:?}"
    );
    assert!(
        findings.iter().any(|finding| finding.found.contains(says)),
        "{findings:?}"
    );
}

#[rstest]
#[case::heard_nothing(attempt(5, Outcome::Timeout { stage: Stage::Tls }, 3000), Weight::Undecided)]
#[case::ended_in_time(attempt(5, Outcome::Garbled { said: String::new() }, 3000), Weight::Violation)]
#[case::ended_long_after_its_limit(attempt(5, Outcome::Garbled { said: String::new() }, 10_042), Weight::Undecided)]
#[case::reset_after_its_limit(attempt(5, failed(Stage::Tls, "ECONNRESET"), 3101), Weight::Undecided)]
#[case::refused_after_its_limit(attempt(5, failed(Stage::Connect, "ECONNREFUSED"), 3101), Weight::Violation)]
fn over_tls_what_ends_after_its_limit_decides_nothing(#[case] other: Attempt, #[case] weight: Weight) {
    let over_tls = |number| Attempt {
        transport: Transport::Tls,
        ..match number {
            5 => other.clone(),
            _ => answered(number, "a/TCP/443"),
        }
    };
    let attempts = many(29, over_tls);
    let expectation = Expectation {
        stream: Stream {
            client: "pod@node-1".into(),
            target: "web".into(),
            transport: Transport::Tls,
        },
        at_least: 28,
        permitted: Permitted::Certified("a".into()),
    };
    let findings = Observed::new(&attempts, &[], TIMES).judge(&expectation);
    let weights: Vec<Weight> = findings.iter().map(|finding| finding.weight).collect();
    assert_eq!(weights, [weight], "{findings:?}");
}

/// Attempts: the clients of the first `still` did not run in time, and the next `nothing` timed out.
fn stood_still(still: usize, nothing: usize) -> Vec<Attempt> {
    let receive = || Outcome::Timeout {
        stage: Stage::Receive,
    };
    many(60, |n| match n {
        _ if n < still => attempt(n, receive(), 5300),
        _ if n < still + nothing => silent(n),
        _ => answered(n, B1),
    })
}

#[rstest]
#[case::as_often(3, 3, &[Weight::Undecided], "; 3 more were silent, which cannot be told from those")]
#[case::less_often(9, 1, &[Weight::Undecided], "; 1 more were silent, which cannot be told from those")]
#[case::so_often_that_few_are_left(20, 20, &[Weight::Undecided, Weight::Undecided], "only 20 of the 28 probes that decide")]
#[case::more_often(3, 4, &[Weight::Violation, Weight::Undecided], "4 of 57 outside: 4 nothing, waiting in connect")]
fn timeouts_are_no_violation_where_the_machine_causes_as_many(
    #[case] still: usize,
    #[case] nothing: usize,
    #[case] weights: &[Weight],
    #[case] says: &str,
) {
    let findings = check(&stood_still(still, nothing), &[], serves(&[B1]));
    let found: Vec<Weight> = findings.iter().map(|finding| finding.weight).collect();
    assert_eq!(found, weights, "{findings:?}");
    assert!(
        findings.iter().any(|finding| finding.found.contains(says)),
        "{findings:?}"
    );
}

#[test]
fn wrong_answers_are_a_violation_whatever_the_machine_does() {
    let mut attempts = stood_still(9, 9);
    attempts[59] = answered(59, B2);
    let findings = check(&attempts, &[], serves(&[B1]));
    assert_eq!(findings[0].weight, Weight::Violation);
    assert!(
        findings[0]
            .found
            .starts_with("wrong answers, 1 of 42 outside: 1 answered by b2/TCP/8080"),
        "{}",
        findings[0]
    );
}

#[rstest]
#[case::in_time_so_the_answer_was_lost(2_000_000, B1, Weight::Violation)]
#[case::just_in_time_so_the_answer_was_lost(3_499_999, B1, Weight::Violation)]
#[case::shortly_before_the_client_gave_up(3_500_000, B1, Weight::Undecided)]
#[case::after_the_client_gave_up(4_000_001, B1, Weight::Undecided)]
#[case::late_and_by_the_wrong_one(4_000_001, B2, Weight::Violation)]
fn a_timeout_is_the_backends_when_it_took_the_request_up_too_late(
    #[case] logged_us: u64,
    #[case] by: &str,
    #[case] weight: Weight,
) {
    let hear_nothing = |n| match n {
        5 => attempt(
            n,
            Outcome::Timeout {
                stage: Stage::Receive,
            },
            3000,
        ),
        _ => answered(n, B1),
    };
    let log = Served {
        time_us: logged_us,
        answer: answer(5, by, 8080),
    };
    let findings = check(&many(29, hear_nothing), &[log], serves(&[B1]));
    assert_eq!(
        findings.iter().map(|finding| finding.weight).collect::<Vec<_>>(),
        [weight],
        "{findings:?}"
    );
}
