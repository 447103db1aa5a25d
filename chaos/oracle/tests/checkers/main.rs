//! The checkers as tables: a sentence, the attempts, what is found.
#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod counts;
mod flows;
mod fragments;
mod machine;
mod sockets;
mod support;

use oracle::{
    check::{Expectation, Observed, Permitted, Stream},
    finding::Weight,
    history::{Attempt, Outcome, Served, Stage, Transport},
    observations::{self, Peer},
    trap::trap_untouched,
};
use rstest::rstest;

use crate::support::{
    B1, B2, TIMES, VIP, address, answer, answered, attempt, check, cut, failed, many, refused, served,
    serves, serves_one_of, serves_or_none, serves_or_refuses, silent,
};

#[rstest]
#[case::exactly_the_set(serves(&[B1, B2]), many(28, |n| answered(n, if n % 2 == 0 { B1 } else { B2 })))]
#[case::refused_by_connect(Permitted::Refuse, many(28, refused))]
#[case::refused_by_policy(Permitted::Refuse, many(28, |n| attempt(n, failed(Stage::Send, "EPERM"), 0)))]
#[case::refused_by_icmp(Permitted::Refuse, many(28, |n| attempt(n, failed(Stage::Receive, "EHOSTUNREACH"), 999)))]
#[case::whichever(serves_one_of(&[B1, B2]), many(28, |n| answered(n, B1)))]
#[case::refused_or_served(serves_or_refuses(&[B1, B2]), many(28, |n| if n % 2 == 0 { refused(n) } else { answered(n, B1) }))]
#[case::served_or_none(serves_or_none(&[B1, B2]), many(28, |n| match n % 4 {
    0 => answered(n, B1),
    1 => attempt(n, failed(Stage::Connect, "ECONNREFUSED"), 1300),
    2 => attempt(n, Outcome::Garbled { said: "HTTP/1.1 400 Bad Request".into() }, 1),
    _ => silent(n),
}))]
#[case::certified(Permitted::Certified("b.svc".into()), many(28, |n| answered(n, "a,b.svc,c/TCP/443")))]
#[case::one_of_many_cut(Permitted::CertifiedOrCut("a".into()),
    many(51, |n| if n == 9 { attempt(n, failed(Stage::Tls, "ECONNRESET"), 1) } else { answered(n, "a/TCP/443") }))]
#[case::one_of_many_ended(Permitted::CertifiedOrCut("a".into()),
    many(51, |n| if n == 9 { attempt(n, Outcome::Garbled { said: String::new() }, 1) } else { answered(n, "a/TCP/443") }))]
#[case::several_cut_at_one_moment(Permitted::CertifiedOrCut("a".into()),
    many(50, |n| if (9..14).contains(&n) { cut(n, 10 * n as u64, 50) } else { answered(n, "a/TCP/443") }))]
#[case::none_is_refused_or_silent(Permitted::None, many(28, |n| if n % 2 == 0 { silent(n) } else { refused(n) }))]
#[case::none_is_what_no_backend_says(Permitted::None, many(28, |n| match n % 3 {
    0 => attempt(n, Outcome::Garbled { said: "HTTP/1.1 400 Bad Request".into() }, 1),
    1 => attempt(n, failed(Stage::Receive, "ECONNRESET"), 1),
    _ => silent(n),
}))]
#[case::none_is_refused_whenever_it_is(Permitted::None,
    many(28, |n| attempt(n, failed(Stage::Connect, "ECONNREFUSED"), if n % 2 == 0 { 1300 } else { 1 })))]
fn what_is_permitted_has_no_finding(#[case] permitted: Permitted, #[case] attempts: Vec<Attempt>) {
    assert_eq!(check(&attempts, &[], permitted), []);
}

#[rstest]
#[case::one_of_n_refused(serves(&[B1]), many(28, |n| if n == 7 { refused(n) } else { answered(n, B1) }),
    "new connections refused, 1 of 28 outside: 1 ECONNREFUSED from connect")]
#[case::one_of_n_silent(serves(&[B1]), many(28, |n| if n == 7 { silent(n) } else { answered(n, B1) }),
    "1 of 28 outside: 1 nothing, waiting in connect")]
#[case::misdelivered(serves(&[B1]), many(28, |n| answered(n, if n == 3 { B2 } else { B1 })),
    "1 of 28 outside: 1 answered by b2/TCP/8080")]
#[case::right_backend_wrong_port(serves(&[B1]), many(28, |n| answered(n, if n == 3 { "b1/TCP/80" } else { B1 })),
    "1 of 28 outside: 1 answered by b1/TCP/80")]
#[case::destination_port_not_translated(serves(&[B1]),
    many(28, |n| attempt(n, Outcome::Answered { answer: answer(n, B1, 80), peer: address(VIP) }, 1)),
    "28 answered by b1/TCP/8080; 28 answered to another nonce, or reached another port")]
#[case::answer_to_another_attempt(serves(&[B1]),
    many(28, |n| attempt(n, Outcome::Answered { answer: answer(n + 1, B1, 8080), peer: address(VIP) }, 1)),
    "28 answered to another nonce")]
#[case::a_backend_missing(serves(&[B1, B2]), many(28, |n| answered(n, B1)), "0 of 28 answered by b2/TCP/8080")]
#[case::garbled(serves(&[B1]), many(28, |n| attempt(n, Outcome::Garbled { said: "SSH-2.0".into() }, 1)),
    "28 of 28 outside: 28 answered by no probe server: \"SSH-2.0\"")]
#[case::refused_too_late(Permitted::Refuse,
    many(28, |n| attempt(n, failed(Stage::Connect, "ECONNREFUSED"), if n == 0 { 1001 } else { 1 })),
    "1 refused later than 1s")]
#[case::another_errno(Permitted::Refuse, many(28, |n| attempt(n, failed(Stage::Connect, "ECONNRESET"), 1)),
    "28 ECONNRESET from connect")]
#[case::silent_is_no_refusal(Permitted::Refuse, many(28, silent), "28 nothing, waiting in connect")]
#[case::refused_is_not_served(serves_one_of(&[B1]), many(28, |n| if n == 3 { refused(n) } else { answered(n, B1) }),
    "1 of 28 outside: 1 ECONNREFUSED from connect")]
#[case::certified_for_another(Permitted::Certified("b".into()), many(28, |n| answered(n, "a,b.svc/TCP/443")),
    "28 answered by a,b.svc/TCP/443")]
#[case::cut(Permitted::Certified("a".into()),
    many(51, |n| if n == 9 { attempt(n, failed(Stage::Receive, "ECONNRESET"), 1) } else { answered(n, "a/TCP/443") }),
    "1 of 51 outside: 1 ECONNRESET from receive")]
#[case::not_connected(Permitted::CertifiedOrCut("a".into()),
    many(51, |n| if n == 9 { refused(n) } else { answered(n, "a/TCP/443") }), "1 of 51 outside: 1 ECONNREFUSED from connect")]
#[case::too_many_cut(Permitted::CertifiedOrCut("a".into()),
    many(50, |n| if (9..14).contains(&n) { cut(n, 10 * n as u64, 39) } else { answered(n, "a/TCP/443") }),
    "5 of 50 outside: 5 ECONNRESET from the TLS handshake")]
#[case::served_by_another(serves_or_refuses(&[B1]), many(28, |n| if n == 3 { answered(n, B2) } else { refused(n) }),
    "1 of 28 outside: 1 answered by b2/TCP/8080")]
#[case::served_by_anothers_is_not_none(serves_or_none(&[B1]), many(28, |n| if n == 3 { answered(n, B2) } else { silent(n) }),
    "1 of 28 outside: 1 answered by b2/TCP/8080")]
#[case::what_no_backend_says_is_no_refusal(Permitted::Refuse,
    many(28, |n| attempt(n, Outcome::Garbled { said: "HTTP/1.1 400 Bad Request".into() }, 1)),
    "answered by what is no backend, 28 of 28 outside: ")]
#[case::neither_served_nor_refused(serves_or_refuses(&[B1]), many(28, silent), "28 nothing, waiting in connect")]
#[case::served_is_not_none(Permitted::None, many(28, |n| answered(n, B1)), "28 answered by b1/TCP/8080")]
fn what_is_outside_is_a_violation(
    #[case] permitted: Permitted,
    #[case] attempts: Vec<Attempt>,
    #[case] says: &str,
) {
    let findings = check(&attempts, &[], permitted);
    let violation = findings
        .iter()
        .find(|finding| finding.weight == Weight::Violation)
        .unwrap();
    assert!(violation.found.contains(says), "{violation}");
    assert!(violation.first.len() <= oracle::finding::SHOWN);
}

#[test]
fn a_probe_that_a_backend_logged_is_not_none_though_the_client_was_refused_late() {
    let late = |n| attempt(n, failed(Stage::Receive, "ECONNREFUSED"), 1300);
    let findings = check(&many(28, late), &[served(5, B1)], Permitted::None);
    assert_eq!(findings.len(), 1);
    let found = &findings[0].found;
    assert!(
        found.starts_with("open sockets ended, 1 of 28 outside: ")
            && found.ends_with("; 1 delivered to a backend all the same"),
        "{found}"
    );
}

#[test]
fn what_its_own_backend_logged_may_be_silent_and_what_another_logged_may_not() {
    let logs = [served(5, B1), served(7, B2)];
    assert_eq!(check(&many(28, silent), &logs, serves_or_none(&[B1, B2])), []);
    let findings = check(&many(28, silent), &logs, serves_or_none(&[B1]));
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].weight, Weight::Violation);
    assert_eq!(findings[0].first[0].nonce, "nonce-7");
}

#[test]
fn a_probe_that_a_backend_logged_is_not_none_though_the_client_timed_out() {
    let findings = check(&many(28, silent), &[served(5, B1)], Permitted::None);
    assert_eq!(findings.len(), 1);
    assert!(findings[0].found.contains("1 of 28 outside"), "{}", findings[0]);
    assert!(
        findings[0].found.contains("1 delivered to a backend"),
        "{}",
        findings[0]
    );
    assert_eq!(findings[0].first[0].nonce, "nonce-5");
}

#[test]
fn streams_are_judged_apart() {
    let other = Stream {
        client: "host@node-1".into(),
        target: "web".into(),
        transport: Transport::Tcp,
    };
    let expectation = Expectation {
        stream: other,
        at_least: 1,
        permitted: serves(&[B1]),
    };
    let attempts = many(28, |n| answered(n, B1));
    let findings = Observed::new(&attempts, &[], TIMES).judge(&expectation);
    assert!(
        findings.iter().all(|finding| finding.weight == Weight::Undecided),
        "{findings:?}"
    );
    assert_eq!(findings[0].subject, "web TCP from host@node-1");
}

#[rstest]
#[case::untouched(many(28, |n| answered(n, B1)), vec![], None)]
#[case::a_log_of_other_attempts(many(28, |n| answered(n, B1)), vec![served(99, "old/TCP/8080")], None)]
#[case::it_answered(many(28, |n| answered(n, if n == 2 { "old/TCP/8080" } else { B1 })), vec![], Some("1 of 28"))]
#[case::it_only_logged(many(28, silent), vec![served(2, "old/TCP/8080")], Some("1 of 28"))]
fn a_trap_gets_nothing(
    #[case] attempts: Vec<Attempt>,
    #[case] log: Vec<Served>,
    #[case] found: Option<&str>,
) {
    let finding = trap_untouched(&attempts, "old", &log);
    assert_eq!(finding.map(|finding| finding.found).as_deref(), found);
}

#[test]
fn a_trap_is_known_by_its_whole_name() {
    assert_eq!(
        trap_untouched(&many(28, |n| answered(n, "older/TCP/8080")), "old", &[]),
        None
    );
}

#[test]
fn peers_and_outcomes_are_counted() {
    let mut attempts = many(2, |n| answered(n, B1));
    if let Outcome::Answered { peer, .. } = &mut attempts[1].outcome {
        *peer = address("10.1.0.2:8080");
    }
    attempts.push(refused(3));
    assert_eq!(
        observations::peers(&attempts),
        [(Peer::Frontend, 1), (Peer::Backend, 1)].into()
    );
    assert_eq!(
        observations::line(&observations::outcomes(&attempts)),
        "2 answered by b1/TCP/8080, 1 ECONNREFUSED from connect"
    );
}

#[test]
fn a_finding_reads_expected_found_and_the_first_attempts() {
    let findings = check(&many(28, refused), &[], serves(&[B1]));
    let text = findings[0].to_string();
    assert!(
        text.starts_with(
            "web TCP from pod@node-1: expected every probe served by exactly {b1/TCP/8080}, found new connections refused, 28 of 28 outside"
        ),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1 + oracle::finding::SHOWN);
    assert!(
        text.contains("10.96.0.10:80 TCP: ECONNREFUSED from connect after 1.0 ms (nonce nonce-0)"),
        "{text}"
    );
}

fn delivered(identities: &[&str]) -> Permitted {
    Permitted::Delivered(identities.iter().map(|one| (*one).to_owned()).collect())
}

fn logged(count: usize, by: impl Fn(usize) -> Option<&'static str>) -> Vec<Served> {
    (0..count).filter_map(|n| Some(served(n, by(n)?))).collect()
}

#[test]
fn datagrams_that_ask_for_no_answer_are_judged_by_logs() {
    let sent = many(28, silent);
    let to_both = logged(28, |n| Some(if n % 2 == 0 { B1 } else { B2 }));
    assert_eq!(check(&sent, &to_both, delivered(&[B1, B2])), []);
    // Whether the client ran in time is all the same where the log has it.
    let late = many(28, |n| {
        let stage = Stage::Receive;
        attempt(n, Outcome::Timeout { stage }, 9000)
    });
    assert_eq!(check(&late, &to_both, delivered(&[B1, B2])), []);
}

#[rstest]
#[case::lost(many(28, silent), Some(B1), None, "1 of 28 outside")]
#[case::misdelivered(
    many(28, silent),
    Some(B1),
    Some(B2),
    "1 of 28 outside: 1 nothing, waiting in connect; 1 delivered to b2/TCP/8080"
)]
#[case::answered_all_the_same(many(28, |n| if n == 7 { answered(n, B1) } else { silent(n) }), Some(B1), Some(B1), "1 of 28 outside: 1 answered by b1/TCP/8080")]
#[case::refused(many(28, |n| if n == 7 { refused(n) } else { silent(n) }), Some(B1), None, "1 of 28 outside: 1 ECONNREFUSED from connect")]
fn a_datagram_that_is_lost_or_misdelivered_is_outside(
    #[case] attempts: Vec<Attempt>,
    #[case] by: Option<&'static str>,
    #[case] seventh: Option<&'static str>,
    #[case] found: &str,
) {
    let logs = logged(28, |n| if n == 7 { seventh } else { by });
    let findings = check(&attempts, &logs, delivered(&[B1]));
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].found.contains(found), "{findings:?}");
}
