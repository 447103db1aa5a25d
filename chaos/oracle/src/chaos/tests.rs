//! Histories of chaos, good and bad, each with what the oracle must say of it.
use std::{collections::BTreeMap, net::SocketAddr};

use super::*;
use crate::history::{Answer, Exchange, Outcome, Stage};

const S: u64 = 1_000_000;
const TO: &str = "10.96.0.1:80";

/// A history of one frontend, whose states begin at these seconds. A write takes a tenth of a second.
fn history(states: &[(u64, &[&str])]) -> ChaosHistory {
    let state = |(at, serves): &(u64, &[&str])| State {
        sent_us: at * S,
        done_us: at * S + S / 10,
        by: String::new(),
        serves: serves.iter().map(|name| format!("{name}/TCP/8001")).collect(),
        owner: String::new(),
        terms: Terms::default(),
    };
    ChaosHistory {
        frontends: vec![Frontend {
            target: "t".to_owned(),
            transport: Transport::Tcp,
            kind: "cluster IP".to_owned(),
            node: None,
            clients: BTreeSet::new(),
            states: states.iter().map(state).collect(),
        }],
        tolerance: Tolerance {
            change_us: 5 * S,
            heal_us: 10 * S,
        },
        clients: BTreeMap::from([("pod@node1".to_owned(), "node1".to_owned())]),
        ..ChaosHistory::default()
    }
}

/// One that began at a tenth of a second, and took a tenth; `None`: refused.
fn attempt(tenths: u64, by: Option<&str>) -> Attempt {
    let destination: SocketAddr = TO.parse().unwrap();
    let nonce = format!("n{tenths}");
    let outcome = match by {
        Some(name) => Outcome::Answered {
            answer: Answer {
                identity: format!("{name}/TCP/8001"),
                source: destination,
                destination: "10.244.1.1:8001".parse().unwrap(),
                nonce: nonce.clone(),
                pod: None,
            },
            peer: destination,
        },
        None => Outcome::Failed {
            stage: Stage::Handshake,
            errno: "ECONNREFUSED".to_owned(),
        },
    };
    Attempt {
        start_us: tenths * S / 10,
        end_us: (tenths + 1) * S / 10,
        client: "pod@node1".to_owned(),
        target: "t".to_owned(),
        transport: Transport::Tcp,
        destination,
        local: Some(SocketAddr::new(
            "10.244.1.9".parse().unwrap(),
            40_000 + tenths as u16,
        )),
        nonce,
        exchange: None,
        fragments: None,
        outcome,
    }
}

fn disturbance(node: Option<&str>, from: u64, until: u64, excuses: Excuses) -> Disturbance {
    Disturbance {
        what: String::new(),
        fault: "agent-killed".to_owned(),
        node: node.map(str::to_owned),
        from_us: from * S,
        until_us: until * S,
        excuses,
    }
}

/// What is broken, in the order of the attempts.
fn broken(history: &ChaosHistory) -> Vec<(Broken, u64)> {
    let outside = judge(history);
    let mut all: Vec<(Broken, u64)> = outside
        .attempts
        .iter()
        .flat_map(|((broken, ..), attempts)| attempts.iter().map(|one| (*broken, one.start_us * 10 / S)))
        .collect();
    all.sort_by_key(|(_, at)| *at);
    all
}

#[test]
fn a_change_may_take_its_time_and_no_longer() {
    let mut all = history(&[(0, &["b1"]), (10, &["b2"])]);
    all.attempts = [(50, "b1"), (120, "b1"), (150, "b1"), (160, "b1"), (161, "b2")]
        .map(|(at, by)| attempt(at, Some(by)))
        .to_vec();
    assert_eq!(
        broken(&all),
        [(Broken::Stale, 160)],
        "10.1 s and 5 s of tolerance"
    );
}

#[test]
fn no_state_is_shown_before_its_write() {
    let mut all = history(&[(0, &["b1"]), (10, &["b2"])]);
    all.attempts = vec![attempt(98, Some("b2")), attempt(99, Some("b2"))];
    assert_eq!(
        broken(&all),
        [(Broken::Stale, 98)],
        "the second ends when the write is sent"
    );
}

#[test]
fn what_was_never_an_endpoint_is_told_apart() {
    let mut all = history(&[(0, &["b1"]), (10, &["b2"])]);
    all.attempts = vec![attempt(120, Some("other"))];
    assert_eq!(broken(&all), [(Broken::Misdelivered, 120)]);
}

#[test]
fn what_had_endpoints_all_along_is_answered() {
    let mut all = history(&[(0, &["b1"]), (10, &["b2"]), (20, &["b1", "b2"])]);
    all.attempts = [50, 105, 150, 205, 300].map(|at| attempt(at, None)).to_vec();
    assert_eq!(broken(&all).len(), 5);
}

#[test]
fn a_datagram_to_an_endpoint_that_leaves_may_have_no_answer_and_no_other_may() {
    let mut all = history(&[(0, &["b1", "b2"]), (10, &["b1"])]);
    all.frontends[0].transport = Transport::Udp;
    all.attempts = [90, 99, 101, 200].map(|at| attempt(at, None)).to_vec();
    for attempt in &mut all.attempts {
        attempt.transport = Transport::Udp;
        attempt.outcome = Outcome::Timeout {
            stage: Stage::Receive,
        };
    }
    let reached = |by: &str| {
        let nonces = all.attempts.iter().map(|one| one.nonce.clone());
        nonces.map(|nonce| (nonce, format!("{by}/TCP/8001"))).collect()
    };
    let (b1, b2) = (reached("b1"), reached("b2"));
    let unserved = |at: &[u64]| -> Vec<_> { at.iter().map(|at| (Broken::Unserved, *at)).collect() };
    assert_eq!(
        broken(&all),
        unserved(&[90, 99, 101, 200]),
        "no backend has logged them"
    );
    all.reached = b1;
    assert_eq!(broken(&all), unserved(&[90, 99, 101, 200]), "their backend stays");
    all.reached = b2;
    assert_eq!(
        broken(&all),
        unserved(&[90, 200]),
        "from the write on, until it is late"
    );
}

#[test]
fn an_emptied_service_may_be_refused_until_its_refill_is_late() {
    let mut all = history(&[(0, &["b1"]), (10, &[]), (20, &["b1"])]);
    all.attempts = [105, 190, 210, 250, 252].map(|at| attempt(at, None)).to_vec();
    assert_eq!(broken(&all), [(Broken::Unserved, 252)]);
    all.attempts = [105, 150, 152].map(|at| attempt(at, Some("b1"))).to_vec();
    assert_eq!(
        broken(&all),
        [(Broken::Stale, 152)],
        "and served no longer than that"
    );
}

#[test]
fn a_node_does_not_go_back_to_what_it_has_left() {
    let mut all = history(&[(0, &["b1"]), (10, &[]), (20, &["b2"])]);
    all.attempts = vec![
        attempt(210, Some("b2")),
        attempt(220, None),
        attempt(230, Some("b1")),
    ];
    let expected = [(Broken::Unserved, 220), (Broken::Stale, 230)];
    assert_eq!(broken(&all), expected, "b2 has shown the last state");
    // A client outside may meet another node, which is later.
    all.clients.clear();
    assert_eq!(broken(&all), [(Broken::Stale, 230)]);
}

#[test]
fn a_disturbed_node_may_be_late_and_its_clients_are_served_all_the_same() {
    let mut all = history(&[(0, &["b1"]), (10, &["b2"])]);
    all.disturbances = vec![disturbance(Some("node1"), 12, 30, Excuses::Late)];
    all.attempts = vec![
        attempt(390, Some("b1")),
        attempt(395, None),
        attempt(401, Some("b1")),
    ];
    let expected = [(Broken::Unserved, 395), (Broken::Stale, 401)];
    assert_eq!(broken(&all), expected, "until 10 s after its end");
    all.disturbances[0].node = Some("node2".to_owned());
    assert_eq!(
        broken(&all)[0],
        (Broken::Stale, 390),
        "another node excuses nothing"
    );
}

#[test]
fn at_the_address_of_another_node_either_may_be_the_one_that_is_disturbed() {
    let mut all = history(&[(0, &["b1"]), (10, &["b2"])]);
    all.frontends[0].node = Some("node2".to_owned());
    for (node, expected) in [("node1", 0), ("node2", 0), ("node3", 1)] {
        all.disturbances = vec![disturbance(Some(node), 12, 30, Excuses::Late)];
        all.attempts = vec![attempt(200, Some("b1"))];
        assert_eq!(broken(&all).len(), expected, "{node}");
    }
}

#[test]
fn disturbances_that_follow_each_other_add_up() {
    let mut all = history(&[(0, &["b1"]), (10, &["b2"])]);
    all.disturbances = vec![
        disturbance(None, 35, 40, Excuses::Late),
        disturbance(None, 12, 30, Excuses::Late),
    ];
    all.attempts = vec![attempt(499, Some("b1")), attempt(502, Some("b1"))];
    assert_eq!(broken(&all), [(Broken::Stale, 502)]);
}

#[test]
fn what_a_node_showed_before_a_disturbance_binds_it_no_longer() {
    let mut all = history(&[(0, &["b1"]), (10, &[]), (20, &["b2"])]);
    all.disturbances = vec![disturbance(Some("node1"), 22, 24, Excuses::Late)];
    // An agent that starts anew may list from a replica that is behind.
    all.attempts = vec![attempt(210, Some("b2")), attempt(230, None)];
    assert_eq!(broken(&all), []);
}

#[test]
fn lost_connections_are_excused_where_packets_are_lost_and_wrong_answers_never() {
    let mut all = history(&[(0, &["b1"])]);
    all.disturbances = vec![disturbance(Some("node1"), 12, 30, Excuses::Lost)];
    all.attempts = vec![
        attempt(118, None),
        attempt(119, None),
        attempt(390, None),
        attempt(402, None),
    ];
    all.attempts.push(attempt(200, Some("other")));
    let expected = [
        (Broken::Unserved, 118),
        (Broken::Misdelivered, 200),
        (Broken::Unserved, 402),
    ];
    assert_eq!(broken(&all), expected);
    assert_eq!(judge(&all).excused, 2);
}

#[test]
fn a_source_port_that_has_just_failed_decides_nothing() {
    let mut all = history(&[(0, &[]), (10, &["b1"])]);
    let port = |mut one: Attempt| {
        one.local = attempt(1, None).local;
        one
    };
    all.attempts = vec![
        port(attempt(90, None)),
        port(attempt(200, None)),
        port(attempt(1500, None)),
    ];
    assert_eq!(
        broken(&all),
        [(Broken::Unserved, 1500)],
        "conntrack forgets it after two minutes"
    );
    assert_eq!(judge(&all).undecided, 1);
}

#[test]
fn a_datagram_of_a_flow_from_before_decides_nothing() {
    let mut all = history(&[(0, &["b1"]), (10, &["b2"])]);
    all.frontends[0].transport = Transport::Udp;
    let datagram = |at| Attempt {
        transport: Transport::Udp,
        ..attempt(at, Some("b1"))
    };
    all.attempts = vec![datagram(500), datagram(1300)];
    for (port, node) in [(40_500, "node1"), (41_300, "node1")] {
        all.flows.insert(UsedFlow {
            node: node.to_owned(),
            port,
            destination: TO.parse().unwrap(),
        });
    }
    assert_eq!(
        broken(&all),
        [(Broken::Stale, 1300)],
        "conntrack forgets it after two minutes"
    );
    assert_eq!(judge(&all).undecided, 1);
    for one in &mut all.attempts {
        one.client = "pod@node2".to_owned();
    }
    assert_eq!(broken(&all).len(), 2, "the flow is another node's");
}

#[test]
fn an_answer_that_is_not_a_backends_is_none() {
    let mut all = history(&[(0, &["b1"])]);
    let mut garbled = attempt(50, None);
    garbled.outcome = Outcome::Garbled {
        said: "HTTP/1.1 302".to_owned(),
    };
    all.attempts = vec![garbled];
    assert_eq!(broken(&all), [(Broken::Unserved, 50)]);
}

#[test]
fn a_history_is_the_same_after_it_was_stored() {
    let mut all = passed_on();
    all.frontends[0].states[1].terms.sticks = true;
    all.disturbances = vec![disturbance(None, 1, 2, Excuses::Lost)];
    all.attempts = vec![attempt(5, Some("b1")), attempt(6, None)];
    let text = serde_json::to_string(&all).unwrap();
    assert_eq!(serde_json::from_str::<ChaosHistory>(&text).unwrap(), all);
    // An earlier version had fewer terms.
    let fewer = text
        .replace("\"may_cut\":false,", "")
        .replace(",\"may_cut\":false", "");
    assert_ne!(fewer, text);
    assert_eq!(serde_json::from_str::<ChaosHistory>(&fewer).unwrap(), all);
}

/// Exchanges on one connection, one in a second from the first on.
fn connection(from: u64, answers: &[Option<&str>]) -> Vec<Attempt> {
    let each = answers.iter().zip(0_u32..).map(|(by, sequence)| Attempt {
        exchange: Some(Exchange {
            flow: 0,
            socket: 0,
            sequence,
        }),
        ..attempt(from + 10 * u64::from(sequence), *by)
    });
    each.collect()
}

#[test]
fn an_established_connection_goes_on_while_its_backend_is_an_endpoint() {
    let mut all = history(&[(0, &["b1", "b2"]), (10, &["b1"])]);
    all.attempts = connection(50, &[Some("b1"); 20]);
    assert_eq!(broken(&all), []);
    assert_eq!(judge(&all).judged, 20);
    all.attempts = connection(50, &[Some("b1"), Some("b1"), None]);
    assert_eq!(broken(&all), [(Broken::Cut, 70)]);
    // Agents that are late or dead cut nothing.
    all.disturbances = vec![disturbance(None, 5, 6, Excuses::Late)];
    assert_eq!(broken(&all), [(Broken::Cut, 70)]);
    // Lost packets do, on whichever node.
    all.disturbances = vec![disturbance(Some("node2"), 5, 6, Excuses::Lost)];
    assert_eq!((broken(&all), judge(&all).excused), (vec![], 1));
    all.disturbances = vec![disturbance(None, 30, 31, Excuses::Lost)];
    assert_eq!(broken(&all), [(Broken::Cut, 70)], "that comes later");
}

#[test]
fn a_connection_whose_backend_has_left_may_end_or_go_on() {
    let mut all = history(&[(0, &["b1"]), (6, &["b2"]), (7, &["b1"])]);
    for last in [Some("b1"), None] {
        all.attempts = connection(50, &[Some("b1"), Some("b1"), Some("b1"), last]);
        assert_eq!(broken(&all), [], "{last:?}");
    }
}

#[test]
fn a_connection_may_end_where_its_address_may_come_in_on_another_node() {
    let mut all = history(&[(0, &["b1"]), (4, &["b1"]), (20, &["b1"])]);
    all.attempts = connection(50, &[Some("b1"), None]);
    assert_eq!(broken(&all), [(Broken::Cut, 60)]);
    all.frontends[0].states[0].terms.may_cut = true;
    assert_eq!(broken(&all), [], "until T_ep after a change, too");
    all.attempts = connection(150, &[Some("b1"), None]);
    assert_eq!(broken(&all), [(Broken::Cut, 160)]);
    all.attempts = connection(150, &[Some("b1"), Some("b2")]);
    all.frontends[0].states[1].terms.may_cut = true;
    assert_eq!(broken(&all), [(Broken::Moved, 160)], "it does not move");
}

#[test]
fn a_connection_never_gets_another_backend() {
    let mut all = history(&[(0, &["b1"]), (6, &["b2"])]);
    all.attempts = connection(50, &[Some("b1"), Some("b1"), Some("b2")]);
    all.disturbances = vec![disturbance(None, 5, 6, Excuses::Lost)];
    assert_eq!(broken(&all), [(Broken::Moved, 70)], "nothing excuses that");
}

#[test]
fn the_first_exchange_of_a_connection_is_an_attempt_like_others() {
    let mut all = history(&[(0, &["b1"])]);
    all.attempts = connection(50, &[None]);
    assert_eq!(broken(&all), [(Broken::Unserved, 50)]);
    all.attempts = connection(50, &[Some("b3"), Some("b3")]);
    assert_eq!(broken(&all), [(Broken::Misdelivered, 50)]);
}

/// The terms of all states of a history.
fn under(mut all: ChaosHistory, terms: Terms) -> ChaosHistory {
    for state in &mut all.frontends[0].states {
        state.terms = terms;
    }
    all
}

#[test]
fn a_client_stays_with_its_backend_under_affinity() {
    let sticks = Terms {
        sticks: true,
        ..Terms::default()
    };
    let mut all = under(history(&[(0, &["b1", "b2"]), (10, &["b1", "b2", "b3"])]), sticks);
    all.attempts = [(50, "b1"), (52, "b1"), (150, "b1"), (154, "b2"), (156, "b2")]
        .map(|(at, by)| attempt(at, Some(by)))
        .to_vec();
    assert_eq!(
        broken(&all),
        [(Broken::Unbound, 154)],
        "it is bound to b2 from then on"
    );
    let mut other = all.clone();
    for one in &mut other.attempts[3..] {
        one.client = "pod@node2".to_owned();
    }
    assert_eq!(broken(&other), [], "another client");
    let mut off = all.clone();
    off.frontends[0].states[0].terms.sticks = false;
    assert_eq!(broken(&off), [], "affinity may not be effective yet");
    let mut left = history(&[(0, &["b1", "b2"]), (15, &["b2"]), (20, &["b1", "b2"])]);
    left.attempts.clone_from(&all.attempts);
    assert_eq!(broken(&under(left, sticks)), [], "b1 may have been away");
    all.disturbances = vec![disturbance(Some("node1"), 12, 13, Excuses::Late)];
    assert_eq!(broken(&all), [], "a new agent may have forgotten it");
    all.disturbances[0].node = Some("node2".to_owned());
    assert_eq!(broken(&all), [(Broken::Unbound, 154)]);
}

#[test]
fn attempts_at_the_same_time_bind_nothing() {
    let sticks = Terms {
        sticks: true,
        ..Terms::default()
    };
    let mut all = under(history(&[(0, &["b1", "b2"])]), sticks);
    all.attempts = vec![attempt(50, Some("b1")), attempt(51, Some("b2"))];
    assert_eq!(broken(&all), [], "the second begins as the first ends");
}

#[test]
fn backends_see_the_clients_own_address_where_that_is_promised() {
    let mut all = history(&[(0, &["b1"]), (10, &["b1", "b2"])]);
    all.attempts = vec![attempt(50, Some("b1"))];
    assert_eq!(broken(&all), [], "nothing is promised");
    all.frontends[0].states[1].terms.keeps_source = true;
    all.attempts.push(attempt(120, Some("b1")));
    all.attempts.push(attempt(152, Some("b1")));
    assert_eq!(
        broken(&all),
        [(Broken::Translated, 152)],
        "until then, the state of before may last"
    );
    let own = all.attempts[2].local;
    if let (Outcome::Answered { answer, .. }, Some(own)) = (&mut all.attempts[2].outcome, own) {
        answer.source = own;
    }
    // A socket that is not connected does not know its own address.
    all.attempts[2].local = Some("0.0.0.0:40152".parse().unwrap());
    assert_eq!(broken(&all), []);
}

#[test]
fn packets_go_other_ways_where_the_datapath_was_taken_away() {
    let keeps = Terms {
        keeps_source: true,
        ..Terms::default()
    };
    let mut all = under(history(&[(0, &["b1"])]), keeps);
    all.attempts = vec![attempt(200, Some("b1"))];
    for (excuses, expected) in [(Excuses::Late, 1), (Excuses::Lost, 0)] {
        all.disturbances = vec![disturbance(Some("node1"), 12, 30, excuses)];
        assert_eq!(broken(&all).len(), expected, "{excuses:?}");
    }
}

/// A frontend that passes from s to t, whose endpoint b1 has just left.
fn passed_on() -> ChaosHistory {
    let mut all = history(&[(0, &["b3"]), (20, &["b2"])]);
    for (state, owner) in all.frontends[0].states.iter_mut().zip(["s", "t"]) {
        state.owner = owner.to_owned();
    }
    let listed = |from: u64, until: u64| Listed {
        from_us: from * S,
        until_us: until * S,
    };
    let of_t = [
        ("b1", listed(0, 19)),
        ("b2", listed(19, 1000)),
        ("b4", listed(0, 5)),
    ];
    let of_t = of_t.map(|(name, listed)| (format!("{name}/TCP/8001"), vec![listed]));
    all.endpoints.insert("t".to_owned(), of_t.into());
    all
}

#[test]
fn a_node_may_learn_of_a_new_owner_before_it_learns_of_its_endpoints() {
    let mut all = passed_on();
    all.attempts = vec![
        attempt(210, Some("b1")),
        attempt(215, None),
        attempt(220, Some("b4")),
        attempt(239, Some("b1")),
        attempt(245, Some("b1")),
        attempt(260, None),
    ];
    let expected = [
        (Broken::Misdelivered, 220),
        (Broken::Misdelivered, 245),
        (Broken::Unserved, 260),
    ];
    assert_eq!(
        broken(&all),
        expected,
        "b4 had left 5 s and longer before, and b1 then"
    );
    assert_eq!(judge(&all).undecided, 1);
    let mut seen = all.clone();
    for state in &mut seen.frontends[0].states {
        state.terms.keeps_source = true;
    }
    seen.attempts = vec![attempt(210, Some("b2"))];
    assert_eq!(
        broken(&seen),
        [(Broken::Translated, 210)],
        "whichever Service has it"
    );
    all.frontends[0].states[1].owner = "s".to_owned();
    all.attempts.truncate(2);
    assert_eq!(broken(&all).len(), 2, "it passes to none");
}

#[test]
fn where_implementations_differ_a_connection_may_fail_and_none_is_answered_by_others() {
    let may_fail = Terms {
        may_fail: true,
        ..Terms::default()
    };
    let mut all = under(history(&[(0, &["b1"])]), may_fail);
    all.attempts = vec![
        attempt(50, None),
        attempt(52, Some("b1")),
        attempt(54, Some("other")),
    ];
    assert_eq!(broken(&all), [(Broken::Misdelivered, 54)]);
}

#[test]
fn a_frontend_may_be_another_one_to_other_clients() {
    let mut all = history(&[(0, &["b1"])]);
    let mut far = all.frontends[0].clone();
    far.states[0].serves = BTreeSet::from(["b2/TCP/8001".to_owned()]);
    all.frontends[0].clients.insert("pod@node1".to_owned());
    far.clients.insert("pod@node2".to_owned());
    all.frontends.push(far);
    let of_far = |mut one: Attempt| {
        one.client = "pod@node2".to_owned();
        one
    };
    all.attempts = vec![
        attempt(50, Some("b1")),
        attempt(52, Some("b2")),
        of_far(attempt(54, Some("b2"))),
        of_far(attempt(56, Some("b1"))),
    ];
    assert_eq!(
        broken(&all),
        [(Broken::Misdelivered, 52), (Broken::Misdelivered, 56)]
    );
}

#[test]
fn coverage_counts_what_was_dialled_while_a_fault_was_there() {
    let mut all = history(&[(0, &["b1"]), (10, &[]), (30, &["b1"])]);
    all.disturbances = vec![
        disturbance(Some("node1"), 8, 12, Excuses::Late),
        disturbance(Some("node2"), 20, 21, Excuses::Late),
    ];
    all.attempts = vec![
        attempt(50, Some("b1")),
        attempt(90, Some("b1")),
        attempt(110, None),
        attempt(205, None),
    ];
    all.attempts[1].client = "outside".to_owned();
    all.attempts.push(attempt(95, Some("b1")));
    let mut coverage = Coverage::default();
    coverage.add(&all);
    let of = |attempts| BTreeMap::from([("cluster IP".to_owned(), attempts)]);
    let met = Covered {
        made: 2,
        kinds: of(2),
        outside: 0,
        unserved: 1,
        changing: 1,
    };
    let quiet = Covered {
        made: 0,
        kinds: of(3),
        outside: 1,
        unserved: 1,
        changing: 0,
    };
    let expected = BTreeMap::from([("agent-killed".to_owned(), met), (String::new(), quiet)]);
    assert_eq!(
        coverage.0, expected,
        "it was at no node of the outside client, nor of node1 the second time"
    );
}
