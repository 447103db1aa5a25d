//! The list of differences that both implementations may have, each with its reason. A reason from the catalogue of
//! claims is a row of its "Not claims". Any other difference is a finding.

use std::collections::BTreeSet;

use super::{Aspect, Shown, Subject, identity};
use crate::{
    churn,
    observation::{Outcome, Peer},
    state::Front,
    step::{Protocol, To, Vantage},
};

/// A permitted difference.
#[derive(Debug)]
pub struct Permitted {
    /// The difference.
    pub what: &'static str,
    /// The reason.
    pub reason: &'static str,
    /// Applies only if one of the two has a recorded deviation from this claim; `None`: always.
    deviation: Option<&'static str>,
    applies: fn(&Subject<'_>, Aspect, &[Shown; 2]) -> bool,
}

/// All permitted differences; the first that applies gives the reason.
pub static ALL: [Permitted; 16] = [
    Permitted {
        what: "which error refuses",
        reason: "it depends on hook and kernel: a socket hook's denial is EPERM, helpers set others, packets are ICMP or RST",
        deviation: None,
        applies: |_, aspect, _| aspect == Aspect::Error,
    },
    Permitted {
        what: "a node port at 127.0.0.1",
        reason: "iptables mode serves IPv4 only, nftables neither unless opted in (KEP-6032), socket hooks both",
        deviation: None,
        applies: |subject, _, _| matches!(subject.to, To::Loopback { .. }),
    },
    Permitted {
        what: "refused or silent at an external frontend without backends",
        reason: "rejecting is upstream's choice, dropping an option elsewhere",
        deviation: None,
        applies: |subject, aspect, shown| {
            let external = matches!(subject.front(), Some((_, Front::NodePort | Front::External)));
            aspect == Aspect::Outcome && external && shown.iter().all(Shown::is_none)
        },
    },
    Permitted {
        what: "refused or silent under a Local policy without a local endpoint",
        reason: "the API's text says dropped, kpng's explains why, OVN-Kubernetes rejects",
        deviation: None,
        applies: |subject, aspect, shown| {
            let local = subject.front().is_some_and(|(service, _)| service.internal_local);
            aspect == Aspect::Outcome && local && shown.iter().all(Shown::is_none)
        },
    },
    Permitted {
        what: "whether a datagram of a socket that is not connected is refused or silent",
        reason: "a socket hook fails sendto(); an ICMP error is not shown to such a socket (ip(7), IP_RECVERR)",
        deviation: None,
        applies: |subject, aspect, shown| {
            let is_udp = subject.protocol == Protocol::Udp;
            aspect == Aspect::Outcome && is_udp && shown.iter().all(Shown::is_none)
        },
    },
    Permitted {
        what: "a pod at the node port of its own node under externalTrafficPolicy Local",
        reason: "upstream removed its test because implementations differ (kubernetes#108526, #123622)",
        deviation: None,
        applies: |subject, _, _| {
            let own = matches!(subject.to, To::At { address, .. } if address.node() == subject.from.node());
            let local = matches!(subject.front(), Some((service, Front::NodePort)) if service.external_local);
            subject.from.is_pod() && own && local
        },
    },
    Permitted {
        what: "a bind of a node's own process to an allocated node port",
        reason: "kube-proxy no longer reserves it, socket hooks may refuse",
        deviation: None,
        applies: |subject, aspect, shown| {
            let taken = subject
                .source_port
                .and_then(|port| subject.state.node_port(port))
                .is_some();
            let refused = shown.iter().any(|one| one.outcomes.contains(&Outcome::NotBound));
            aspect == Aspect::Outcome && subject.from.is_host() && taken && refused
        },
    },
    Permitted {
        what: "established TCP to an endpoint that has left its Service, or at a frontend that has",
        reason: "it may run on, stall or be reset; none is promised",
        deviation: None,
        applies: |subject, aspect, _| {
            let is_tcp = subject.protocol == Protocol::Tcp;
            aspect == Aspect::Outcome && is_tcp && has_left(subject)
        },
    },
    Permitted {
        what: "a connected socket of UDP whose backend gets no datagrams any more: ended, or moved to another one",
        reason: "a socket hook's choice is the socket's, so it ends the socket (udp-connected-socket-released); packets are translated again",
        deviation: None,
        applies: |subject, aspect, shown| {
            let is_connected = subject.protocol == Protocol::UdpConnected;
            let is_ended = shown.iter().any(|one| one.outcomes.contains(&Outcome::Cut));
            aspect == Aspect::Outcome && is_connected && is_ended && was_left(subject)
        },
    },
    Permitted {
        what: "datagrams of a socket whose backend serves on, but not here under the Service's new policy: kept, or moved by it",
        reason: "a socket keeps its backend as long as that is in the set (udp-socket-sticks), and no policy is said to end it",
        deviation: None,
        applies: |subject, aspect, shown| {
            let is_udp = subject.protocol != Protocol::Tcp;
            let misleads = shown.iter().any(|one| !one.others.is_empty());
            aspect == Aspect::Outcome && is_udp && is_elsewhere(subject) && !misleads
        },
    },
    Permitted {
        what: "the source address that a backend sees",
        reason: "translation is a means: only externalTrafficPolicy Local and a pod at a cluster IP promise the client's own",
        deviation: None,
        applies: |subject, aspect, _| aspect == Aspect::Source && !keeps_source(subject),
    },
    Permitted {
        what: "whether a connected socket shows the frontend or the backend",
        reason: "socket or packet translation; a third address is a finding",
        deviation: None,
        applies: |subject, aspect, shown| {
            let is_third = |peer: &Peer| matches!(peer, Peer::Other(_));
            let third = shown.iter().any(|one| one.peers.iter().any(is_third));
            aspect == Aspect::Peer && subject.protocol != Protocol::Udp && !third
        },
    },
    Permitted {
        what: "datagrams of a flow whose Service has no endpoint any more",
        reason: "kube-proxy's flows stay with the last endpoint when it goes (kubernetes#139628)",
        deviation: Some("udp-zero-and-back"),
        applies: |subject, aspect, _| {
            let empty = subject
                .front()
                .is_some_and(|(service, _)| service.eligible().is_empty());
            aspect == Aspect::Outcome && is_flow(subject) && empty
        },
    },
    Permitted {
        what: "datagrams of a flow whose Service is gone, or no longer has the frontend",
        reason: "kube-proxy's flows outlive their Service (kubernetes#141371)",
        deviation: Some("udp-deleted-no-misdelivery"),
        applies: |subject, aspect, _| {
            let is_gone = subject.front().is_none() && subject.state.was_front(subject.to);
            aspect == Aspect::Outcome && is_flow(subject) && is_gone
        },
    },
    Permitted {
        what: "which condition of an endpoint counts that slices list with different ones",
        reason: "the API does not say it; an answer by any other backend is a finding",
        deviation: None,
        applies: |subject, aspect, shown| {
            matches!(aspect, Aspect::Outcome | Aspect::Served | Aspect::Moved) && is_disputed(subject, shown)
        },
    },
    Permitted {
        what: "refused or silent at a port of an address that no Service and no server has",
        reason: "the machine itself answers; whether a node rejects for it is its own choice",
        deviation: None,
        applies: |subject, aspect, shown| {
            aspect == Aspect::Outcome && subject.front().is_none() && shown.iter().all(Shown::is_none)
        },
    },
];

/// The reason why both are permitted.
pub(crate) fn find(
    subject: &Subject<'_>,
    aspect: Aspect,
    shown: &[Shown; 2],
    deviations: &BTreeSet<String>,
) -> Option<&'static Permitted> {
    ALL.iter().find(|one| {
        let is_known = one.deviation.is_none_or(|claim| deviations.contains(claim));
        is_known && (one.applies)(subject, aspect, shown)
    })
}

/// Whether slices list an endpoint of the dialled Service with different conditions, and what both show agrees with one of them.
fn is_disputed(subject: &Subject<'_>, shown: &[Shown; 2]) -> bool {
    let state = subject.state;
    let front = state.front(subject.to);
    let disputed = front.and_then(|(number, _)| {
        let found = churn::disputed(&state.world, number, subject.from, subject.to);
        found.map(|found| (number, found))
    });
    let Some((number, disputed)) = disputed else {
        return false;
    };
    let by: BTreeSet<String> = disputed.by.iter().map(|one| identity(*one, number)).collect();
    // An established flow may go on with an endpoint, or end with it.
    let may_fail = disputed.may_fail || subject.kept.is_some();
    let serves = |one: &Shown| one.outcomes.iter().all(|outcome| *outcome == Outcome::Answered);
    let agrees = |one: &Shown| one.others.is_subset(&by) && (may_fail || serves(one));
    shown.iter().all(agrees)
}

/// Whether conntrack entries of earlier datagrams of a UDP socket may decide about the next one.
fn is_flow(subject: &Subject<'_>) -> bool {
    subject.protocol != Protocol::Tcp && (subject.kept.is_some() || subject.source_port.is_some())
}

/// Whether this is so of one of the backends that last answered a kept socket in the two clusters, now or between two writes of the last
/// step.
fn was(subject: &Subject<'_>, is: impl Fn(&Subject<'_>, &String) -> bool) -> bool {
    let before = subject.kept.iter().flat_map(|kept| kept.before.iter().flatten());
    before
        .into_iter()
        .any(|by| subject.moments().any(|moment| is(&moment, by)))
}

/// Whether the backend that last answered a kept socket gets nothing new from here.
fn was_left(subject: &Subject<'_>) -> bool {
    was(subject, |moment, by| !moment.near().contains(by))
}

/// Whether the backend that last answered a kept socket still serves, but gets nothing new from here.
fn is_elsewhere(subject: &Subject<'_>) -> bool {
    was(subject, |moment, by| {
        moment.expected().contains(by) && !moment.near().contains(by)
    })
}

/// Whether the endpoint of a connection has left the dialled Service.
fn has_left(subject: &Subject<'_>) -> bool {
    was(subject, |moment, by| {
        by.starts_with('b') && !listed(moment).contains(by)
    })
}

/// The endpoints of the dialled Service.
fn listed(subject: &Subject<'_>) -> BTreeSet<String> {
    let Some((number, _)) = subject.state.front(subject.to) else {
        return BTreeSet::new();
    };
    let service = subject.state.services.get(&number);
    let endpoints = service.into_iter().flat_map(|service| service.endpoints.keys());
    endpoints.map(|one| identity(*one, number)).collect()
}

/// Whether the client's own address must be preserved. A kept socket may have begun under another policy.
fn keeps_source(subject: &Subject<'_>) -> bool {
    if subject.kept.as_ref().is_some_and(|kept| kept.is_connected) {
        return false;
    }
    match subject.front() {
        Some((service, Front::ClusterIp)) => {
            let meets_itself = subject
                .from
                .backend()
                .is_some_and(|own| service.endpoints.contains_key(&own));
            subject.from.is_pod() && !meets_itself
        }
        Some((service, Front::NodePort | Front::External)) => {
            service.external_local && subject.from == Vantage::Outside
        }
        None => !has_left(subject),
    }
}
