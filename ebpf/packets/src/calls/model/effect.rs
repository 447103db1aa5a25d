//! What follows from a call: what is noted of sockets, which server the kernel reaches, what the client is shown.

use std::net::IpAddr;

use lb_abi::{
    Address, Backend, Chosen, ChosenKey, Counter, FrontendKey, Port, SocketRevnat, SocketRevnatKey,
    frontend_flags,
};

use super::{
    decide::{Fate, Hook, decide, is_node, unspecified},
    state::{CallResult, Outcome, Socket, State},
};
use crate::calls::{
    named_address::{NamedAddress, is_local, is_served},
    step::{Bound, Call, Group, SocketKind, To},
};

/// Most entries of a socket that are removed when it is closed.
const MOST_RELEASED: usize = 64;

/// Before the first backend of a socket.
const NONE: Backend = Backend {
    address: Address::UNSPECIFIED_V6,
    port: Port::new(0),
    protocol: 0,
    flags: 0,
};

impl Socket {
    /// What it asks for, as maps have it.
    fn key(&self, to: To) -> FrontendKey {
        let v4 = self.kind.names_v4(to.v4);
        Group { tcp: self.tcp, v4 }.key(to.place, to.port)
    }

    /// Where the kernel sends what is sent to an address: of the unspecified one to loopback; by IPv4 to what the socket sends from,
    /// if that is decided.
    fn resolved(&self, key: &FrontendKey) -> (Address, u16) {
        let address = match IpAddr::from(key.address) {
            IpAddr::V4(v4) if v4.is_unspecified() => self.source.unwrap_or(Address::LOOPBACK_V4),
            IpAddr::V6(v6) if v6.is_unspecified() => Address::LOOPBACK_V6,
            _ => key.address,
        };
        (address, key.port.get())
    }
}

/// Whether a call can be made: of a socket that is there, and without an answer that comes by an ICMP error, which the next call
/// would meet at some time.
pub fn applies(state: &State, slot: usize, call: Call) -> bool {
    let open = state.open.get(&slot);
    let Some(socket) = open else {
        return matches!(call, Call::Open { .. } | Call::Bind(_));
    };
    match call {
        Call::Open { .. } | Call::Bind(_) | Call::Close | Call::Peer => true,
        Call::Connect(_) => socket.kind != SocketKind::Dual && (!socket.tcp || socket.peer.is_none()),
        Call::Send { to, .. } => {
            let (address, port) = socket.resolved(&socket.key(to));
            let unheard = is_local(address) && !is_served(address, port, false);
            !socket.tcp && (socket.peer.is_none() || !unheard)
        }
        Call::Again { .. } => {
            let heard = |(address, port)| is_served(address, port, false);
            !socket.tcp && !socket.is_misled && socket.peer.is_some_and(heard)
        }
        Call::Unsolicited { .. } => !socket.tcp && socket.peer.is_none(),
    }
}

/// Every outcome of a call that is permitted at this time; at least one. Of a new socket the cookie is not known.
pub fn permitted(state: &State, slot: usize, call: Call, now: u32) -> Vec<Outcome> {
    let unchanged = || Outcome {
        seen: CallResult::default(),
        state: state.clone(),
    };
    let open = state.open.get(&slot).copied();
    let (socket, mut outcome) = match (call, open) {
        (Call::Open { kind, tcp, pod }, there) => {
            let mut outcome = unchanged();
            if let Some(there) = there {
                close(&mut outcome, slot, &there);
            }
            let socket = Socket {
                kind,
                tcp,
                pod,
                cookie: 0,
                peer: None,
                source: None,
                is_misled: false,
            };
            outcome.state.open.insert(slot, socket);
            return vec![outcome];
        }
        (Call::Bind(bound), _) => return vec![bind(unchanged(), bound)],
        (_, Some(socket)) => (socket, unchanged()),
        (_, None) => return vec![unchanged()],
    };
    match call {
        Call::Close => close(&mut outcome, slot, &socket),
        Call::Peer => match socket.peer {
            None => outcome.seen.error = Some(ENOTCONN),
            Some(peer) => show(&mut outcome, &socket, peer, Counter::GetpeernameReversed),
        },
        Call::Unsolicited { from, port, v4 } => {
            let v4 = socket.kind.names_v4(v4);
            outcome.seen.received = true;
            show(
                &mut outcome,
                &socket,
                (from.address(v4), port),
                Counter::RecvmsgReversed,
            );
        }
        Call::Connect(to) => {
            return each(
                outcome,
                &socket,
                &socket.key(to),
                Hook::Connect,
                now,
                |outcome, at| {
                    connect(outcome, slot, &socket, at);
                },
            );
        }
        Call::Send { to, asks } => {
            return each(
                outcome,
                &socket,
                &socket.key(to),
                Hook::Sendmsg,
                now,
                |outcome, at| {
                    send(outcome, &socket, at, asks);
                },
            );
        }
        Call::Again { asks } => {
            let peer = socket.peer.expect("a call that applies");
            if socket.kind == SocketKind::Mapped {
                // The kernel sends by IPv4, and names the peer to that as a client would.
                let (address, port) = peer;
                let key = FrontendKey {
                    address,
                    port: Port::new(port),
                    ..Group { tcp: false, v4: true }.key(NamedAddress::Unspecified, 0)
                };
                return each(outcome, &socket, &key, Hook::Sendmsg, now, |outcome, at| {
                    send(outcome, &socket, at, asks);
                });
            }
            send(&mut outcome, &socket, peer, asks);
        }
        Call::Open { .. } | Call::Bind(_) => unreachable!("answered above"),
    }
    vec![outcome]
}

const ENETUNREACH: i32 = nix::errno::Errno::ENETUNREACH as i32;
const ECONNREFUSED: i32 = nix::errno::Errno::ECONNREFUSED as i32;
const EADDRINUSE: i32 = nix::errno::Errno::EADDRINUSE as i32;
const ENOTCONN: i32 = nix::errno::Errno::ENOTCONN as i32;

/// Everything that may become of a destination, with what the kernel does then.
fn each(
    outcome: Outcome,
    socket: &Socket,
    key: &FrontendKey,
    hook: Hook,
    now: u32,
    go: impl Fn(&mut Outcome, (Address, u16)),
) -> Vec<Outcome> {
    let key = *key;
    if !outcome.state.live {
        let mut outcome = outcome;
        go(&mut outcome, socket.resolved(&key));
        return vec![outcome];
    }
    let decisions = decide(&outcome.state, socket, hook, &key, now);
    let outcomes = decisions.into_iter().map(|decision| {
        let mut outcome = outcome.clone();
        count(&mut outcome, decision.counter);
        if let Some((client, affinity)) = decision.affinity {
            outcome.state.maps.affinity.insert(client, affinity);
        }
        match decision.fate {
            Fate::Left => {
                if hook == Hook::Connect {
                    forget(&mut outcome.state, socket.cookie, key);
                }
                go(&mut outcome, socket.resolved(&key));
            }
            Fate::Refused => outcome.seen.error = Some(ECONNREFUSED),
            Fate::Sent {
                service,
                id,
                backend,
                noted,
            } => {
                outcome.seen.services.insert(service, 1);
                outcome.seen.backends.insert(id, 1);
                if noted {
                    let chosen = ChosenKey {
                        cookie: socket.cookie,
                        frontend: key,
                        pad: 0,
                    };
                    let value = Chosen { service, backend: id };
                    outcome.state.chosen.insert(chosen, value);
                }
                remember(&mut outcome.state, socket.cookie, backend, key);
                go(&mut outcome, (backend.address, backend.port.get()));
            }
        }
        outcome
    });
    outcomes.collect()
}

fn count(outcome: &mut Outcome, counter: Counter) {
    *outcome.seen.counters.entry(counter).or_default() += 1;
}

fn noted(cookie: u64, backend: Backend) -> SocketRevnatKey {
    SocketRevnatKey {
        cookie,
        backend: Backend { flags: 0, ..backend },
        pad: 0,
    }
}

/// The frontend is noted in SOCKET_REVNAT and SOCKET_BACKEND: of several by which a socket has reached one backend, the one asked last, in the
/// place of the first.
fn remember(state: &mut State, cookie: u64, backend: Backend, frontend: FrontendKey) {
    let key = noted(cookie, backend);
    let there = state.reverse.get(&key).map(|there| there.previous);
    let newest = state.sockets.get(&cookie).copied();
    let previous = there.or(newest).unwrap_or(NONE);
    state.reverse.insert(key, SocketRevnat { frontend, previous });
    if there.is_none() {
        state.sockets.insert(cookie, key.backend);
    }
}

/// An address that was a frontend's backend for this socket is nothing but itself to it.
fn forget(state: &mut State, cookie: u64, address: FrontendKey) {
    let FrontendKey {
        address: at,
        port,
        protocol,
        ..
    } = address;
    let backend = Backend {
        address: at,
        port,
        protocol,
        flags: 0,
    };
    if let Some(there) = state.reverse.get_mut(&noted(cookie, backend)) {
        there.frontend = address;
    }
}

fn connect(outcome: &mut Outcome, slot: usize, socket: &Socket, at: (Address, u16)) {
    outcome.seen.error = if !is_local(at.0) {
        Some(ENETUNREACH)
    } else if socket.tcp && !is_served(at.0, at.1, true) {
        Some(ECONNREFUSED)
    } else {
        None
    };
    if outcome.seen.error.is_none() {
        outcome.seen.server = Some(at).filter(|_| socket.tcp);
        let connected = Socket {
            peer: Some(at),
            source: socket.source.or(source(at.0)),
            is_misled: false,
            ..*socket
        };
        outcome.state.open.insert(slot, connected);
    } else if socket.peer.is_some() {
        let misled = Socket {
            is_misled: true,
            ..*socket
        };
        outcome.state.open.insert(slot, misled);
    }
}

/// Where the kernel sends from to a local IPv4 address, once connected: from that address, but to all of 127.0.0.0/8 from
/// 127.0.0.1, the preferred source of its route (`RTN_LOCAL` in `ip_route_output_key_hash_rcu`).
fn source(destination: Address) -> Option<Address> {
    if !destination.is_v4() {
        return None;
    }
    Some(if destination.is_loopback() {
        Address::LOOPBACK_V4
    } else {
        destination
    })
}

/// The kernel sends a datagram; a server at that address answers.
fn send(outcome: &mut Outcome, socket: &Socket, at: (Address, u16), asks: bool) {
    if !is_local(at.0) {
        outcome.seen.error = Some(ENETUNREACH);
    } else if is_served(at.0, at.1, false) {
        outcome.seen.server = Some(at);
        answer(outcome, socket, at, asks);
    }
}

/// A server answers; a connected socket takes it from its peer alone.
fn answer(outcome: &mut Outcome, socket: &Socket, server: (Address, u16), asks: bool) {
    if socket.peer.is_none_or(|peer| peer == server) {
        outcome.seen.received = true;
        if asks {
            show(outcome, socket, server, Counter::RecvmsgReversed);
        }
    }
}

/// Shows an address to a client: the frontend's, if it is a backend that the socket has been sent to.
fn show(outcome: &mut Outcome, socket: &Socket, (address, port): (Address, u16), counter: Counter) {
    let protocol = Group {
        tcp: socket.tcp,
        v4: true,
    }
    .protocol();
    let backend = Backend {
        address,
        port: Port::new(port),
        protocol,
        flags: 0,
    };
    let remembered = outcome.state.reverse.get(&noted(socket.cookie, backend)).copied();
    outcome.seen.shown = match remembered.filter(|_| outcome.state.live) {
        Some(SocketRevnat { frontend, .. }) => {
            count(outcome, counter);
            Some((frontend.address, frontend.port.get()))
        }
        None => Some((address, port)),
    };
}

/// What is noted of the socket goes with it.
fn close(outcome: &mut Outcome, slot: usize, socket: &Socket) {
    let state = &mut outcome.state;
    state.open.remove(&slot);
    if !state.live {
        return;
    }
    let Some(mut backend) = state.sockets.remove(&socket.cookie) else {
        return;
    };
    for _ in 0..MOST_RELEASED {
        let Some(SocketRevnat { frontend, previous }) = state.reverse.remove(&noted(socket.cookie, backend))
        else {
            break;
        };
        state.chosen.remove(&ChosenKey {
            cookie: socket.cookie,
            frontend,
            pad: 0,
        });
        backend = previous;
    }
    count(outcome, Counter::SocketReleased);
}

/// Binding a node port fails in the node's own namespace, where it answers.
fn bind(mut outcome: Outcome, bound: Bound) -> Outcome {
    let state = &outcome.state;
    let in_node = state.maps.config.node_netns == if bound.pod { state.ids.pod } else { state.ids.node };
    let v4 = bound.kind != SocketKind::V6;
    let has_node_port = |v4: bool| {
        let key = Group { tcp: bound.tcp, v4 }.key(NamedAddress::Unspecified, bound.port);
        let frontend = state.maps.frontends.get(&key);
        frontend.is_some_and(|frontend| frontend.flags & frontend_flags::TARGET_PORT == 0)
    };
    let address = bound.place.address(v4);
    let answers = IpAddr::from(address).is_unspecified() || is_node(state, address);
    let dual = address == unspecified(false) && !bound.only_v6;
    let taken = (has_node_port(v4) && answers) || (dual && has_node_port(true));
    if state.live && in_node && taken {
        count(&mut outcome, Counter::BindRefused);
        outcome.seen.error = Some(EADDRINUSE);
    }
    outcome
}
