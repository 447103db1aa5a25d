//! Datagrams that go on with a flow of before.
//!
//! A new socket gets a source port from the kernel at random, and now and then one that the client has sent from
//! before: to an implementation, and to the backend, that is the flow of before. What becomes of flows whose backend
//! has gone is a claim of its own (`udp-zero-and-back`), and one that drains keeps its flows; what a *new* client meets is not
//! decided by them.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{Mutex, PoisonError},
};

use oracle::{
    check::Permitted,
    history::{Attempt, Outcome, Transport},
};

use crate::destination::Destination;

/// A node, a source port of one of its clients, and what that sends to: some clients of a node share its network.
type Flow = (String, u16, SocketAddr);

/// Flows of datagrams that were answered, and by whom, of all of a case: bounded by its probes.
#[derive(Debug, Default)]
pub(crate) struct AnsweredFlows(Mutex<HashMap<Flow, HashSet<String>>>);

impl AnsweredFlows {
    /// Notes those that were answered, of attempts that were looked at.
    pub(crate) fn add<'a>(&self, attempts: impl IntoIterator<Item = &'a Attempt>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for attempt in attempts {
            if let (Outcome::Answered { answer, .. }, Some(flow)) = (&attempt.outcome, flow(attempt)) {
                let by = known.entry(flow).or_default();
                if !by.contains(&answer.identity) {
                    by.insert(answer.identity.clone());
                }
            }
        }
    }

    /// Parts attempts into those that decide, and those that go on with a flow of before: to a target that must refuse or may be
    /// served by any of some backends, and to one that must be served by others than the flow's.
    pub(crate) fn without_repeated(
        &self,
        targets: &[Destination],
        attempts: Vec<Attempt>,
    ) -> (Vec<Attempt>, Vec<Attempt>) {
        let permitted: HashMap<SocketAddr, &Permitted> = targets
            .iter()
            .map(|target| (target.address, &target.permitted))
            .collect();
        let decides = |attempt: &Attempt| match permitted.get(&attempt.destination) {
            None => true,
            Some(Permitted::Serves(identities)) => self.all_by(attempt, |by| identities.contains(by)),
            Some(_) => self.all_by(attempt, |_| false),
        };
        attempts.into_iter().partition(decides)
    }

    /// Whether all who have answered an attempt's flow before are such; so it is of a new flow.
    fn all_by(&self, attempt: &Attempt, test: impl Fn(&str) -> bool) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let by = flow(attempt).and_then(|flow| known.get(&flow));
        by.is_none_or(|by| by.iter().all(|identity| test(identity)))
    }
}

/// Of a socket's first datagram; none of TCP, whose attempts are connections, nor of an exchange on a flow that is known
/// to be old.
fn flow(attempt: &Attempt) -> Option<Flow> {
    if attempt.transport == Transport::Tcp || attempt.exchange.is_some() {
        return None;
    }
    let local = attempt.local?;
    let node = attempt.client.rsplit('@').next().unwrap_or_default();
    Some((node.to_owned(), local.port(), attempt.destination))
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
        let flows = AnsweredFlows::default();
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
    fn a_flow_of_before_decides_where_the_same_backend_must_serve() {
        let flows = AnsweredFlows::default();
        flows.add(&[attempt(Transport::Udp, 4001, true)]);
        let decide = |permitted: Permitted| {
            let address = "10.96.0.9:53".parse().unwrap();
            let target = Destination {
                permitted,
                ..Destination::none("a", "t", Transport::Udp, address)
            };
            let attempts = vec![
                attempt(Transport::Udp, 4001, true),
                attempt(Transport::Udp, 4002, true),
            ];
            flows.without_repeated(&[target], attempts).0.len()
        };
        let by = |identity: &str| [identity.to_owned()].into();
        assert_eq!(decide(Permitted::Serves(by("b/UDP/53"))), 2);
        assert_eq!(decide(Permitted::Serves(by("c/UDP/53"))), 1);
        assert_eq!(decide(Permitted::ServesOneOf(by("b/UDP/53"))), 1);
        assert_eq!(decide(Permitted::None), 1);
    }
}
