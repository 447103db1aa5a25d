//! Packets without a flow: whether they are for a service, which backend they go to, and which source port they get.

use lb_abi::{
    Address, Flow, Frontend, FrontendKey, SCTP, Service, SourceKey, TCP, UDP, address_flags, backend_flags,
    flow_flags, frontend_flags,
};

use crate::{
    Scope, affinity_of_address, choose, find_at, maglev_hash,
    net::{
        Hook, Outcome,
        conntrack::{ACK, RST, SYN},
        martian, node_sockets,
        packet_state::{Fragment, Old, PacketState},
        route,
        source_ports::{self, SourcePort},
        traits::{Entry, Inserted, Node},
    },
};

/// Finds the frontend and chooses a backend, or returns why no connection is opened. Not inlined: what it has on the stack is not
/// needed any more when a port is allocated, which has the stack's other half.
#[inline(never)]
pub(super) fn backend<N: Node>(hook: Hook, node: N, work: &mut PacketState) -> Result<(), Outcome> {
    let destination = FrontendKey {
        address: work.headers.tuple.destination,
        port: work.headers.tuple.destination_port,
        protocol: work.headers.tuple.protocol,
        pad: 0,
    };
    let flags = if hook.inbound() {
        work.destination_flags
    } else {
        match super::flags(node, destination.address) {
            Some(flags) => flags,
            None => return Err(Outcome::Passed),
        }
    };
    // Whatever frontend may be there: most packets of the node's own connections.
    if is_nodes_alone(flags) && begins(work, false).is_err() {
        return Err(Outcome::Passed);
    }
    let scope = hook.scope();
    let Some(frontend) = find_at(&node, &destination, flags) else {
        return Err(no_frontend(hook, work, flags));
    };
    let Some(service_port) = scope.service_port(&frontend) else {
        return Err(no_frontend(hook, work, flags));
    };
    if matches!(work.headers.fragment, Fragment::Later) {
        return Err(
            if flags & (address_flags::VIP | address_flags::LOAD_BALANCER) != 0 {
                Outcome::DroppedFragment
            } else {
                Outcome::Passed
            },
        );
    }
    let maglev = frontend.flags & frontend_flags::MAGLEV != 0;
    let is_anothers = (is_stacks(flags, maglev) || is_machines(scope, flags)) && begins(work, false).is_err();
    if is_anothers || flags & address_flags::NODE != 0 && node_sockets::receives(node, work) {
        return Err(Outcome::Passed);
    }
    let client = work.headers.tuple.source;
    if martian::is_one(hook, node, client) {
        return Err(Outcome::DroppedMartian);
    }
    if frontend.flags & frontend_flags::SOURCE_RANGES != 0 && !node.admits(&source_key(&frontend, client)) {
        return Err(Outcome::DroppedSourceRange);
    }
    let service = match node.service(service_port) {
        None | Some(Service { generation: 0, .. }) => return Err(Outcome::DroppedHole),
        Some(Service { slots: 0, .. }) => return Err(no_backend(scope, &frontend, work)),
        Some(service) => service,
    };
    begins(work, maglev)?;
    let number = if maglev {
        maglev_hash(&work.headers.tuple)
    } else {
        node.random()
    };
    let client = affinity_of_address(service_port, client);
    let chosen = choose(&node, &frontend, service_port, service, &client, number);
    let Some((backend_id, backend)) = chosen else {
        return Err(Outcome::DroppedHole);
    };
    // Never, by what the agent writes; and nothing that could be sent.
    if backend.address.is_v4() != work.headers.v4 {
        return Err(Outcome::DroppedHole);
    }
    (work.service, work.backend) = (service_port, backend_id);
    work.to = work.headers.tuple;
    work.to.destination = backend.address;
    work.to.destination_port = backend.port;
    work.source_port = SourcePort::Kept;
    let own = node.own_address(work.headers.v4);
    let has_own = own != Address::UNSPECIFIED_V4 && own != Address::UNSPECIFIED_V6;
    if is_masqueraded(hook, node, work, backend.flags) {
        if !has_own {
            return Err(Outcome::DroppedRoute);
        }
        work.to.source = own;
        work.source_port = SourcePort::Allocated;
    } else if may_be_there_already(hook, node, work) {
        work.source_port = SourcePort::AllocatedIfFree;
        // Where policy `Local` keeps the client's address, its port alone is another one; so it is for a backend at the node's own
        // address, which takes nothing from itself.
        let keeps_address =
            frontend.flags & frontend_flags::SILENT != 0 || route::is_own(node, backend.address);
        if has_own && !keeps_address {
            work.to.source = own;
        }
    } else if is_left_by_sockets(hook, work, frontend.flags, flags) {
        work.source_port = SourcePort::AllocatedIfFree;
    }
    Ok(())
}

/// Whether an address is the node's own, and none of those whose ports without a frontend may be refused, or whose connections move
/// between nodes: what is in the middle of a connection is the stack's there, as [`is_stacks`] has it.
#[inline(always)]
const fn is_nodes_alone(flags: u32) -> bool {
    flags & address_flags::ALL == address_flags::NODE
}

/// Whether an address is the node's own: the stack has what is in the middle of a connection there. It may be a local socket's that
/// is older than the frontend, or one that netfilter translates: it masquerades pods, and sockets whose port it has given away, by any
/// port, also by one that is a node port. The stack resets what is of no connection. (A load balancer's address moves from one
/// node to another, and its connections with it, where all choose the same backend.)
#[inline(always)]
const fn is_stacks(flags: u32, maglev: bool) -> bool {
    flags & address_flags::NODE != 0 && !(maglev && flags & address_flags::LOAD_BALANCER != 0)
}

/// Whether an address may be some machine's, of which Services have no more than ports: an external IP, or a load balancer's.
/// A connection to it from here that is older than the frontend goes on. (From outside, packets come in here because the address
/// is routed here.)
#[inline(always)]
const fn is_machines(scope: Scope, flags: u32) -> bool {
    const OURS: u32 = address_flags::VIP | address_flags::NODE;
    matches!(scope, Scope::Internal) && flags & OURS == 0
}

/// No frontend has this port; `flags`: of the address.
#[inline(always)]
fn no_frontend(hook: Hook, work: &PacketState, flags: u32) -> Outcome {
    if super::reserved(hook, flags) {
        rejected(work, Outcome::UnknownPort)
    } else {
        Outcome::Passed
    }
}

#[inline(always)]
fn no_backend(scope: Scope, frontend: &Frontend, work: &PacketState) -> Outcome {
    if matches!(scope, Scope::External) && frontend.flags & frontend_flags::SILENT != 0 {
        Outcome::DroppedNoLocalBackend
    } else {
        rejected(work, Outcome::NoBackend)
    }
}

/// RST is not sent about RST.
#[inline(always)]
fn rejected(work: &PacketState, outcome: Outcome) -> Outcome {
    if work.headers.tuple.protocol == TCP && work.headers.signals & RST != 0 {
        Outcome::DroppedNoFlow
    } else {
        outcome
    }
}

/// Whether a packet may be the first one that this node sees of a connection. With Maglev, another node may have had
/// it before.
#[inline(always)]
fn begins(work: &PacketState, maglev: bool) -> Result<(), Outcome> {
    let signals = work.headers.signals;
    match work.headers.tuple.protocol {
        TCP if signals & (SYN | ACK | RST) == SYN => Ok(()),
        TCP if signals & RST != 0 => Err(Outcome::DroppedNoFlow),
        TCP if !maglev => Err(Outcome::NoFlow),
        SCTP if signals & SYN == 0 && !maglev => Err(Outcome::DroppedNoFlow),
        _ => Ok(()),
    }
}

#[inline(always)]
fn source_key(frontend: &Frontend, client: Address) -> SourceKey {
    let service = if frontend.external == 0 {
        frontend.internal
    } else {
        frontend.external
    };
    SourceKey::client(service, client)
}

/// Whether the answer would not come by here otherwise: the backend has to see the node's address.
#[inline(always)]
fn is_masqueraded<N: Node>(hook: Hook, node: N, work: &PacketState, backend: u8) -> bool {
    let client = work.headers.tuple.source;
    client == work.to.destination
        || matches!(hook.scope(), Scope::External) && backend & backend_flags::LOCAL == 0
        || matches!(hook, Hook::NodeEgress) && !route::is_node(node, client)
}

/// Whether the backend may have a connection with the client's own address and port that was never seen here: a socket
/// of the cluster is connected to the backend itself, whichever frontend it asked for.
#[inline(always)]
fn may_be_there_already<N: Node>(hook: Hook, node: N, work: &PacketState) -> bool {
    let client = work.headers.tuple.source;
    matches!(hook.scope(), Scope::External) && node.admits(&SourceKey::client(SourceKey::CLUSTER, client))
}

/// Whether the client's socket leaves this frontend to packets, while others of the same backend are translated at sockets:
/// from one address and port, the backend would have one tuple for both, and an answer to what a socket has sent itself would
/// come back from this frontend. So the client's address stays, and its port does not.
#[inline(always)]
const fn is_left_by_sockets(hook: Hook, work: &PacketState, frontend: u32, address: u32) -> bool {
    let datagram = matches!(hook, Hook::PodIngress) && work.headers.tuple.protocol == UDP;
    matches!(hook.scope(), Scope::Internal)
        && (frontend & frontend_flags::SOURCE_RANGES != 0 || (datagram && address & address_flags::NODE != 0))
}

/// Opens the connection, to [`PacketState::to`]: writes both entries, or returns why not.
#[inline(always)]
pub(super) fn store<N: Node>(hook: Hook, node: N, work: &mut PacketState) -> Result<Outcome, Outcome> {
    let now = node.now();
    work.flow = Flow {
        to: work.headers.tuple.inverse(),
        seen: work.headers.shows(false),
        last_seen: now,
        service: work.service,
        backend: work.backend,
        flags: 0,
        pad: 0,
        claim: super::claim(node),
    };
    if matches!(work.source_port, SourcePort::Kept) {
        route::decide(hook, node, work, 0)?;
        work.source_port = source_ports::keep(hook, node, work, now)?;
    }
    if !matches!(work.source_port, SourcePort::Kept) {
        // The stack takes nothing from the node's own address. A client that keeps its own goes through the stack, as its answers
        // do: of a connection that the kernel's own tracking saw in one direction alone, it would masquerade what the other
        // end sends.
        let kind = if work.to.source == work.headers.tuple.source {
            flow_flags::OTHER_PORT
        } else {
            flow_flags::SNAT
        };
        route::decide(hook, node, work, kind)?;
        match source_ports::port(hook, node, work, now, kind) {
            // Better an address that may be there already than none.
            Err(Outcome::DroppedPortsExhausted)
                if matches!(work.source_port, SourcePort::AllocatedIfFree) =>
            {
                keep_after_all(hook, node, work, now)?;
            }
            stored => stored?,
        }
    }
    // The other entry, now: the client's.
    work.reply_key = work.to.inverse();
    work.flow.to = work.to;
    work.flow.flags &= !flow_flags::REPLY;
    if matches!(work.old, Old::Replaced) {
        if !node.store(&work.headers.tuple, &work.flow) {
            node.remove(&work.reply_key);
            return Err(Outcome::DroppedFlowsFull);
        }
        if work.old_reply_key != work.reply_key {
            forget(node, work);
        }
        return Ok(Outcome::Opened);
    }
    match node.insert(&work.headers.tuple, &work.flow) {
        Inserted::New => Ok(Outcome::Opened),
        Inserted::Exists => follow(hook, node, work, now),
        Inserted::Full => {
            node.remove(&work.reply_key);
            Err(Outcome::DroppedFlowsFull)
        }
    }
}

/// No port is free for a client that may as well keep its own.
#[inline(always)]
fn keep_after_all<N: Node>(hook: Hook, node: N, work: &mut PacketState, now: u32) -> Result<(), Outcome> {
    work.to.source = work.headers.tuple.source;
    work.to.source_port = work.headers.tuple.source_port;
    route::decide(hook, node, work, 0)?;
    match source_ports::keep(hook, node, work, now)? {
        SourcePort::Kept => Ok(()),
        SourcePort::Allocated | SourcePort::AllocatedIfFree => Err(Outcome::DroppedPortsExhausted),
    }
}

/// Another processor has opened the same connection just now: the packet follows it.
#[inline(always)]
fn follow<N: Node>(hook: Hook, node: N, work: &mut PacketState, now: u32) -> Result<Outcome, Outcome> {
    let Some(entry) = node.flow(&work.headers.tuple) else {
        return Err(Outcome::DroppedFlowsFull);
    };
    work.to = entry.to();
    if work.to.inverse() != work.reply_key {
        node.remove(&work.reply_key);
    }
    route::decide(hook, node, work, entry.flags())?;
    entry.note(work.headers.shows(false), now);
    (work.service, work.backend) = (entry.service(), entry.backend());
    Ok(Outcome::Forwarded)
}

/// Removes the reply's entry of the flow that was replaced, if it is still that flow's.
#[inline(always)]
fn forget<N: Node>(node: N, work: &PacketState) {
    if let Some(reply) = node.flow(&work.old_reply_key)
        && reply.to().inverse() == work.headers.tuple
    {
        node.remove(&work.old_reply_key);
    }
}
