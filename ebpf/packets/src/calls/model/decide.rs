//! `connect` and `sendmsg`: where a destination leads. DATAPATH.md, "Finding a frontend", "Choosing a backend", "Sockets".

use std::{collections::BTreeSet, net::IpAddr};

use lb_abi::{
    Address, Affinity, AffinityKey, Backend, BackendId, ChosenKey, Counter, Frontend, FrontendKey, Service,
    ServiceId, SlotKey, SourceKey, address_flags, frontend_flags,
};

use super::state::{Socket, State};

/// Which call asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hook {
    Connect,
    Sendmsg,
}

/// What becomes of a destination.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Fate {
    Left,
    Refused,
    Sent {
        service: ServiceId,
        id: BackendId,
        backend: Backend,
        /// Whether it was chosen now, and for this socket's next datagrams.
        noted: bool,
    },
}

/// One that is permitted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Decision {
    pub(super) fate: Fate,
    pub(super) counter: Counter,
    pub(super) affinity: Option<(AffinityKey, Affinity)>,
}

impl Hook {
    const fn passed(self) -> Counter {
        match self {
            Self::Connect => Counter::ConnectPassed,
            Self::Sendmsg => Counter::SendmsgPassed,
        }
    }

    const fn refused(self) -> Counter {
        match self {
            Self::Connect => Counter::ConnectRefused,
            Self::Sendmsg => Counter::SendmsgRefused,
        }
    }

    const fn translated(self) -> Counter {
        match self {
            Self::Connect => Counter::ConnectTranslated,
            Self::Sendmsg => Counter::SendmsgTranslated,
        }
    }
}

const fn plainly(fate: Fate, counter: Counter) -> Decision {
    Decision {
        fate,
        counter,
        affinity: None,
    }
}

/// Everything that may become of a destination.
pub(super) fn decide(
    state: &State,
    socket: &Socket,
    hook: Hook,
    to: &FrontendKey,
    now: u32,
) -> BTreeSet<Decision> {
    let Some((frontend, service)) = frontend(state, socket, to) else {
        let decision = if is_reserved(state, to.address) {
            plainly(Fate::Refused, hook.refused())
        } else {
            plainly(Fate::Left, hook.passed())
        };
        return [decision].into();
    };
    let in_node = state.maps.config.node_netns == if socket.pod { state.ids.pod } else { state.ids.node };
    let at_node = state
        .maps
        .addresses
        .get(&to.address)
        .is_some_and(|flags| flags & address_flags::NODE != 0);
    // Of a pod's datagram to the node packets tell whether it is an answer.
    let by_packets = hook == Hook::Sendmsg && at_node && !in_node;
    if by_packets || frontend.flags & frontend_flags::SOURCE_RANGES != 0 {
        return [plainly(Fate::Left, Counter::SocketDeferred)].into();
    }
    let sent = |id, backend, noted| Fate::Sent {
        service,
        id,
        backend,
        noted,
    };
    if hook == Hook::Sendmsg {
        let key = ChosenKey {
            cookie: socket.cookie,
            frontend: *to,
            pad: 0,
        };
        let chosen = state.chosen.get(&key).filter(|chosen| chosen.service == service);
        let there =
            chosen.and_then(|chosen| Some((chosen.backend, *state.maps.backends.get(&chosen.backend)?)));
        if let Some((id, backend)) = there {
            return [plainly(sent(id, backend, false), hook.translated())].into();
        }
    }
    let (mut choices, counter) = match state.maps.services.get(&service) {
        None | Some(Service { generation: 0, .. }) => (BTreeSet::from([None]), Counter::SocketHole),
        Some(Service { slots: 0, .. }) => (BTreeSet::from([None]), hook.refused()),
        Some(current) => (slots(state, service, *current), Counter::SocketHole),
    };
    let mut key = None;
    if frontend.affinity_seconds != 0 {
        let client = client(service, if socket.pod { state.ids.pod } else { state.ids.node });
        if let Some(kept) = kept_by_affinity(state, &frontend, &client, now) {
            choices = [Some(kept)].into();
        }
        key = Some(client);
    }
    let mut all = BTreeSet::new();
    for choice in choices {
        // Written for whatever backend is chosen.
        let affinity = key.zip(choice).map(|(key, (backend, _))| {
            let value = Affinity {
                backend,
                seconds: now,
            };
            (key, value)
        });
        let right = choice.filter(|(_, backend)| backend.address.is_v4() == to.address.is_v4());
        let decisions = match right {
            Some((id, backend)) => {
                let noted = hook == Hook::Sendmsg;
                BTreeSet::from([plainly(sent(id, backend, noted), hook.translated())])
            }
            None if state.maps.config.own_cgroup == state.ids.cgroup => own(state, service, to.address),
            None => [plainly(Fate::Refused, counter)].into(),
        };
        all.extend(
            decisions
                .into_iter()
                .map(|decision| Decision { affinity, ..decision }),
        );
    }
    all
}

/// The frontend of a destination, and its service port in the scope of sockets.
fn frontend(state: &State, socket: &Socket, to: &FrontendKey) -> Option<(Frontend, ServiceId)> {
    let frontends = &state.maps.frontends;
    let is_unspecified = IpAddr::from(to.address).is_unspecified();
    let exact = frontends.get(to).filter(|_| !is_unspecified);
    let found = exact.or_else(|| {
        let is_loopback = is_unspecified || to.address.is_loopback();
        let in_node = state.maps.config.node_netns == if socket.pod { state.ids.pod } else { state.ids.node };
        let key = FrontendKey {
            address: unspecified(to.address.is_v4()),
            ..*to
        };
        let answers = is_node(state, to.address) && (!is_loopback || in_node);
        frontends.get(&key).filter(|_| answers)
    })?;
    (found.internal != 0).then_some((*found, found.internal))
}

/// Whether ADDRESSES has an address as the node's, as which 127.0.0.1 stands for all of loopback.
pub(super) fn is_node(state: &State, address: Address) -> bool {
    let looked_up = match IpAddr::from(address) {
        IpAddr::V4(v4) if v4.is_loopback() || v4.is_unspecified() => Address::LOOPBACK_V4,
        IpAddr::V6(v6) if v6.is_unspecified() => Address::LOOPBACK_V6,
        _ => address,
    };
    let flags = state.maps.addresses.get(&looked_up);
    flags.is_some_and(|flags| flags & address_flags::NODE != 0)
}

pub(super) const fn unspecified(v4: bool) -> Address {
    if v4 {
        Address::UNSPECIFIED_V4
    } else {
        Address::UNSPECIFIED_V6
    }
}

fn is_reserved(state: &State, address: Address) -> bool {
    let maps = &state.maps;
    match maps.addresses.get(&address) {
        Some(flags) => flags & address_flags::VIP != 0,
        None => {
            let in_range = maps
                .config
                .service_ranges
                .iter()
                .any(|range| range.contains(address));
            let of_cluster = maps
                .sources
                .iter()
                .any(|range| range.service == SourceKey::CLUSTER.to_be_bytes() && range.address == address);
            in_range && !of_cluster
        }
    }
}

/// Backends of all slots, and `None` for those that are holes.
fn slots(state: &State, service: ServiceId, current: Service) -> BTreeSet<Option<(BackendId, Backend)>> {
    (0..current.slots)
        .map(|index| {
            let key = SlotKey {
                service,
                generation: current.generation,
                index,
            };
            let id = *state.maps.slots.get(&key)?;
            Some((id, *state.maps.backends.get(&id)?))
        })
        .collect()
}

fn client(service: ServiceId, netns: u64) -> AffinityKey {
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&netns.to_ne_bytes());
    AffinityKey {
        service,
        kind: 1,
        client: Address::v6(octets),
    }
}

fn kept_by_affinity(
    state: &State,
    frontend: &Frontend,
    client: &AffinityKey,
    now: u32,
) -> Option<(BackendId, Backend)> {
    let maps = &state.maps;
    let current = maps.services.get(&client.service)?;
    if current.generation == 0 || current.slots == 0 {
        return None;
    }
    let affinity = maps.affinity.get(client)?;
    let age = now.wrapping_sub(affinity.seconds).cast_signed().max(0);
    let young = age.cast_unsigned() <= frontend.affinity_seconds;
    let member = SlotKey::member(client.service, current.generation, affinity.backend);
    let is_member = maps.slots.contains_key(&member);
    let backend = maps.backends.get(&affinity.backend)?;
    (young && is_member).then_some((affinity.backend, *backend))
}

/// The agent's own, where there is no backend or a hole.
fn own(state: &State, service: ServiceId, address: Address) -> BTreeSet<Decision> {
    let left = || plainly(Fate::Left, Counter::OwnPassed);
    let Some(kept) = state
        .kept
        .get(&service)
        .filter(|kept| kept.generation != 0 && kept.slots != 0)
    else {
        return [left()].into();
    };
    let choices = slots(state, service, *kept).into_iter();
    choices
        .map(|choice| match choice {
            Some((id, backend)) if backend.address.is_v4() == address.is_v4() => {
                let fate = Fate::Sent {
                    service,
                    id,
                    backend,
                    noted: false,
                };
                plainly(fate, Counter::OwnKept)
            }
            _ => left(),
        })
        .collect()
}
