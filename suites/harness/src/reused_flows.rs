//! Attempts that go on with a flow of before.
//!
//! A new socket gets a source port from the kernel at random, and now and then one that the client has used for the same
//! destination before: to an implementation, and to the backend of a datagram, that is the flow of before. What a *new* client
//! meets is not decided by such attempts.
//!
//! - A datagram of a flow that was answered before: what becomes of flows whose backend has gone is a claim of its own
//!   (`udp-zero-and-back`), and one that drains keeps its flows.
//! - A connection, or a datagram, of a flow that failed a moment ago: conntrack leaves a connection untranslated whose first packet
//!   met no rule, and later ones of its source port too, for as long as its entry lives ([`REMEMBERED`]). So a port that was dialled
//!   in an outage fails once more after it, with kube-proxy and the like (<https://github.com/kubernetes/kubernetes/issues/48719>).

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use oracle::{
    check::Permitted,
    history::{Attempt, Outcome, Transport},
};

/// A node, a source port of one of its clients, and what that sends to: some clients of a node share its network.
type Flow = (String, u16, SocketAddr);

/// How long conntrack remembers a connection whose SYN is not answered, after the last SYN: `nf_conntrack_tcp_timeout_syn_sent`
/// (nf_conntrack-sysctl, kernel doc). A datagram without an answer: 30 s.
const REMEMBERED: Duration = Duration::from_secs(120);

/// Flows of all attempts of a case: bounded by its probes.
#[derive(Debug, Default)]
pub(crate) struct KnownFlows {
    /// Flows of datagrams that were answered, and by whom.
    answered: Mutex<HashMap<Flow, HashSet<String>>>,
    /// Flows that failed, of datagrams or (true) of connections, and when: microseconds since the Unix epoch.
    failed: Mutex<HashMap<(Flow, bool), Vec<u64>>>,
}

impl KnownFlows {
    /// Notes an attempt that failed, as soon as it has.
    pub(crate) fn note_failure(&self, attempt: &Attempt) {
        if matches!(attempt.outcome, Outcome::Answered { .. }) {
            return;
        }
        if let Some(flow) = flow(attempt) {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed
                .entry((flow, is_connection(attempt)))
                .or_default()
                .push(attempt.end_us);
        }
    }

    /// Notes those that were answered, of attempts that were looked at.
    pub(crate) fn add<'a>(&self, attempts: impl IntoIterator<Item = &'a Attempt>) {
        let mut known = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let attempts = attempts.into_iter().filter(|attempt| !is_connection(attempt));
        for attempt in attempts {
            if let (Outcome::Answered { answer, .. }, Some(flow)) = (&attempt.outcome, flow(attempt)) {
                let by = known.entry(flow).or_default();
                if !by.contains(&answer.identity) {
                    by.insert(answer.identity.clone());
                }
            }
        }
    }

    /// Flows of datagrams that were answered so far.
    pub(crate) fn answered(&self) -> Vec<Flow> {
        let known = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        known.keys().cloned().collect()
    }

    /// Parts attempts, by what is permitted where they dialled, into those that decide, and those that go on with a flow of before: to a target that must refuse or may be
    /// served by any of some backends, to one that must be served by others than the flow's, and to one that must be served where
    /// the flow has failed a moment ago. The latter are noted where they were answered: what decides nothing now is a flow of before
    /// later.
    pub(crate) fn without_repeated(
        &self,
        permitted: &HashMap<SocketAddr, &Permitted>,
        attempts: Vec<Attempt>,
    ) -> (Vec<Attempt>, Vec<Attempt>) {
        let decides = |attempt: &Attempt| match permitted.get(&attempt.destination) {
            None => true,
            Some(Permitted::Serves(identities)) => {
                !self.has_just_failed(attempt) && self.all_by(attempt, |by| identities.contains(by))
            }
            Some(Permitted::ServesOneOf(_)) => {
                !self.has_just_failed(attempt) && self.all_by(attempt, |_| false)
            }
            Some(_) => self.all_by(attempt, |_| false),
        };
        let (deciding, repeated): (Vec<_>, Vec<_>) = attempts.into_iter().partition(decides);
        self.add(&repeated);
        (deciding, repeated)
    }

    /// Whether an attempt of the same flow had failed when this one began, so short a time before that conntrack may remember it.
    fn has_just_failed(&self, attempt: &Attempt) -> bool {
        let Some(flow) = flow(attempt) else {
            return false;
        };
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let times = failed.get(&(flow, is_connection(attempt)));
        let remembered = REMEMBERED.as_micros();
        let since = |ended: &u64| attempt.start_us.checked_sub(*ended);
        let mut since = times.into_iter().flatten().filter_map(since);
        since.any(|since| u128::from(since) < remembered)
    }

    /// Whether all who have answered an attempt's flow before are such; so it is of a new flow.
    fn all_by(&self, attempt: &Attempt, test: impl Fn(&str) -> bool) -> bool {
        if is_connection(attempt) {
            return true;
        }
        let known = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let by = flow(attempt).and_then(|flow| known.get(&flow));
        by.is_none_or(|by| by.iter().all(|identity| test(identity)))
    }
}

/// Of a connection, or of a socket's first datagram; none of an exchange on a flow that is known to be old.
fn flow(attempt: &Attempt) -> Option<Flow> {
    if attempt.exchange.is_some() {
        return None;
    }
    let local = attempt.local?;
    let node = attempt.client.rsplit('@').next().unwrap_or_default();
    Some((node.to_owned(), local.port(), attempt.destination))
}

fn is_connection(attempt: &Attempt) -> bool {
    !matches!(attempt.transport, Transport::Udp | Transport::UdpConnected)
}

#[cfg(test)]
mod tests {
    use oracle::history::{Answer, Stage};

    use super::*;

    fn attempt(transport: Transport, port: u16, answered: bool) -> Attempt {
        let destination: SocketAddr = "10.96.0.9:53".parse().unwrap();
        let outcome = if answered {
            Outcome::Answered {
                answer: Answer {
                    identity: "b/UDP/53".into(),
                    source: destination,
                    destination,
                    nonce: "n".into(),
                    pod: None,
                },
                peer: destination,
            }
        } else {
            Outcome::Timeout {
                stage: Stage::Receive,
            }
        };
        Attempt {
            start_us: 0,
            end_us: 0,
            client: "pod@node1".into(),
            target: "t".into(),
            transport,
            destination,
            local: Some(([0, 0, 0, 0], port).into()),
            nonce: "n".into(),
            exchange: None,
            fragments: None,
            outcome,
        }
    }

    #[test]
    fn a_source_port_that_was_answered_is_the_flow_of_before() {
        let flows = KnownFlows::default();
        flows.add(&[
            attempt(Transport::Udp, 4001, true),
            attempt(Transport::Udp, 4002, false),
            attempt(Transport::Tcp, 4003, true),
        ]);
        let other_client = Attempt {
            client: "pod@node2".into(),
            ..attempt(Transport::Udp, 4001, true)
        };
        let other_target = Attempt {
            destination: "10.96.0.8:53".parse().unwrap(),
            ..attempt(Transport::Udp, 4001, true)
        };
        let same_network = Attempt {
            client: "host@node1".into(),
            ..attempt(Transport::Udp, 4001, true)
        };
        let has = |attempt: &Attempt| !flows.all_by(attempt, |_| false);
        assert!(has(&same_network));
        // Connected or not, the datagrams are the same.
        assert!(has(&attempt(Transport::UdpConnected, 4001, true)));
        for new in [
            attempt(Transport::Udp, 4002, true),
            attempt(Transport::Tcp, 4003, true),
            other_client,
            other_target,
        ] {
            assert!(!has(&new), "{new:?}");
        }
    }

    #[test]
    fn a_connection_from_a_port_that_has_just_failed_decides_nothing_about_what_is_served() {
        let flows = KnownFlows::default();
        let at = |start_us: u64, port: u16, answered: bool| Attempt {
            start_us,
            end_us: start_us + 1_000_000,
            ..attempt(Transport::Tcp, port, answered)
        };
        let (failed, again, late) = (
            at(0, 4001, false),
            at(60_000_000, 4001, false),
            at(121_000_000, 4001, false),
        );
        for attempt in [&failed, &again, &at(0, 4002, true)] {
            flows.note_failure(attempt);
        }
        let address = "10.96.0.9:53".parse().unwrap();
        let decide = |permitted: Permitted, attempt: &Attempt| {
            let permitted = [(address, &permitted)].into();
            flows.without_repeated(&permitted, vec![attempt.clone()]).0.len() == 1
        };
        let by = || ["b/UDP/53".to_owned()].into();
        assert!(decide(Permitted::Serves(by()), &failed), "the first");
        assert!(!decide(Permitted::Serves(by()), &again));
        assert!(!decide(Permitted::ServesOneOf(by()), &again));
        assert!(decide(Permitted::None, &again), "no port may serve");
        assert!(!decide(Permitted::Serves(by()), &late), "the second failure's");
        assert!(decide(Permitted::Serves(by()), &at(182_000_000, 4001, false)));
        assert!(
            decide(Permitted::Serves(by()), &at(60_000_000, 4002, false)),
            "it was served"
        );
        let datagram = Attempt {
            transport: Transport::Udp,
            ..again
        };
        assert!(decide(Permitted::Serves(by()), &datagram), "another protocol's");
    }

    #[test]
    fn a_flow_that_was_answered_after_it_had_failed_is_one_of_before() {
        let flows = KnownFlows::default();
        let address = "10.96.0.9:53".parse().unwrap();
        let at = |start_us: u64, answered: bool| Attempt {
            start_us,
            end_us: start_us,
            ..attempt(Transport::Udp, 4001, answered)
        };
        let decides = |permitted: &Permitted, attempt: Attempt| {
            let permitted = [(address, permitted)].into();
            flows.without_repeated(&permitted, vec![attempt]).0.len() == 1
        };
        flows.note_failure(&at(0, false));
        let by = Permitted::Serves(["b/UDP/53".to_owned()].into());
        assert!(!decides(&by, at(60_000_000, true)));
        assert!(!decides(&Permitted::None, at(100_000_000, true)));
    }

    #[test]
    fn a_flow_of_before_decides_where_the_same_backend_must_serve() {
        let flows = KnownFlows::default();
        flows.add(&[attempt(Transport::Udp, 4001, true)]);
        let decide = |permitted: Permitted| {
            let attempts = vec![
                attempt(Transport::Udp, 4001, true),
                attempt(Transport::Udp, 4002, true),
            ];
            let permitted = [("10.96.0.9:53".parse().unwrap(), &permitted)].into();
            flows.without_repeated(&permitted, attempts).0.len()
        };
        let by = |identity: &str| [identity.to_owned()].into();
        assert_eq!(decide(Permitted::Serves(by("b/UDP/53"))), 2);
        assert_eq!(decide(Permitted::Serves(by("c/UDP/53"))), 1);
        assert_eq!(decide(Permitted::ServesOneOf(by("b/UDP/53"))), 1);
        assert_eq!(decide(Permitted::None), 1);
    }
}
