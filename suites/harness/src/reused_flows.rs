//! Datagrams that go on with a flow of before.
//!
//! A new socket gets a source port from the kernel at random, and now and then one that the client has sent from
//! before: to an implementation, and to the backend, that is the flow of before. What becomes of flows whose backend
//! has gone is a claim of its own (`udp-zero-and-back`); what a *new* client meets is not decided by them.

use std::{
    collections::HashSet,
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

/// Flows of datagrams that were answered, of all of a case: bounded by its probes.
#[derive(Debug, Default)]
pub(crate) struct AnsweredFlows(Mutex<HashSet<Flow>>);

impl AnsweredFlows {
    /// Notes those that were answered, of attempts that were looked at.
    pub(crate) fn add<'a>(&self, attempts: impl IntoIterator<Item = &'a Attempt>) {
        let answered = attempts
            .into_iter()
            .filter(|attempt| matches!(attempt.outcome, Outcome::Answered { .. }));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(answered.filter_map(flow));
    }

    /// Parts attempts into those that decide, and those that go on with a flow of before to a target that must refuse.
    pub(crate) fn without_repeated(
        &self,
        targets: &[Destination],
        attempts: Vec<Attempt>,
    ) -> (Vec<Attempt>, Vec<Attempt>) {
        let refusing: HashSet<SocketAddr> = targets
            .iter()
            .filter(|target| !matches!(target.permitted, Permitted::Serves(_)))
            .map(|target| target.address)
            .collect();
        attempts
            .into_iter()
            .partition(|attempt| !refusing.contains(&attempt.destination) || !self.has(attempt))
    }

    fn has(&self, attempt: &Attempt) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        flow(attempt).is_some_and(|flow| known.contains(&flow))
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
        assert!(flows.has(&same_network));
        // Connected or not, the datagrams are the same.
        assert!(flows.has(&attempt(Transport::UdpConnected, 4001, true)));
        for new in [
            attempt(Transport::Udp, 4002, true),
            attempt(Transport::Tcp, 4003, true),
            other_client,
            other_target,
        ] {
            assert!(!flows.has(&new), "{new:?}");
        }
    }
}
