//! recvmsg, getpeername and sock_release: the frontends of a socket's backends.
//!
//! An LRU map has no way to find all that there is of one socket, and would fill with those of closed ones. So the
//! entries of a socket are a list: SOCKET_BACKEND has the newest, and each entry names the one before. Two threads that send
//! on one socket at the same time may break it; what is then left behind is forgotten in its turn, as everything is
//! that is not used.

use aya_ebpf::{
    helpers::generated::bpf_get_socket_cookie,
    programs::{SockAddrContext, SockContext},
};
use lb_abi::{Address, Backend, ChosenKey, Counter, FrontendKey, Port, SocketRevnat, SocketRevnatKey};

use super::{
    PROCEED, Return,
    context::{Family, Operation},
};
use crate::maps::{CHOSEN, Maps, SOCKET_BACKEND, SOCKET_REVNAT, count};

/// Most entries of a socket that are removed when it is closed: a client that has sent to more backends by one
/// unconnected socket leaves the rest to be forgotten.
const MOST_RELEASED: u32 = 64;

/// `BPF_EXIST`: write only what is there.
const BPF_EXIST: u64 = 2;

/// Before the first backend of a socket. No service has protocol 0.
const NONE: Backend = Backend {
    address: Address::UNSPECIFIED_V6,
    port: Port::new(0),
    protocol: 0,
    flags: 0,
};

/// A client receives a datagram and asks for its source.
#[inline(always)]
pub fn recvmsg<F: Family>(_family: F, context: &SockAddrContext) -> Return {
    show(Operation::<F>::new(context), Counter::RecvmsgReversed)
}

/// A client asks for its peer.
#[inline(always)]
pub fn getpeername<F: Family>(_family: F, context: &SockAddrContext) -> Return {
    show(Operation::<F>::new(context), Counter::GetpeernameReversed)
}

/// A socket is closed.
#[inline(always)]
pub fn release(context: &SockContext) -> Return {
    if Maps::live().is_none() {
        return PROCEED;
    }
    // SAFETY: the kernel's pointer.
    let cookie = unsafe { bpf_get_socket_cookie(context.sock.cast()) };
    let Some(mut backend) = newest(cookie) else {
        return PROCEED;
    };
    for _ in 0..MOST_RELEASED {
        let key = SocketRevnatKey {
            cookie,
            backend,
            pad: 0,
        };
        let Some(SocketRevnat { frontend, previous }) = noted(&key) else {
            break;
        };
        // Gone already: the kernel has forgotten it meanwhile; and of a connected socket there is no choice.
        let _ = SOCKET_REVNAT.remove(&key);
        let _ = CHOSEN.remove(ChosenKey {
            cookie,
            frontend,
            pad: 0,
        });
        backend = previous;
    }
    let _ = SOCKET_BACKEND.remove(&cookie);
    count(Counter::SocketReleased);
    PROCEED
}

/// Notes which frontend a socket's traffic with a backend belongs to.
#[inline(always)]
pub fn remember(cookie: u64, backend: &Backend, frontend: &FrontendKey) -> Result<(), i32> {
    let backend = Backend { flags: 0, ..*backend };
    let key = SocketRevnatKey {
        cookie,
        backend,
        pad: 0,
    };
    let there = noted(&key);
    // A client that sends many datagrams would take a lock of the map for each.
    if let Some(there) = &there
        && there.frontend == *frontend
    {
        return Ok(());
    }
    if let Some(SocketRevnat { previous, .. }) = there {
        // The same backend by another frontend: answers are shown from the one that was asked last. It keeps its place in the
        // list.
        return SOCKET_REVNAT.insert(
            &key,
            &SocketRevnat {
                frontend: *frontend,
                previous,
            },
            0,
        );
    }
    let previous = newest(cookie).unwrap_or(NONE);
    SOCKET_REVNAT.insert(
        &key,
        &SocketRevnat {
            frontend: *frontend,
            previous,
        },
        0,
    )?;
    // Without it the entry is forgotten in its turn, and not when the socket is closed.
    let _ = SOCKET_BACKEND.insert(&cookie, &backend, 0);
    Ok(())
}

/// Notes that a socket's traffic with an address is no frontend's any more. The entry stays, with the address as its own frontend:
/// it is part of the socket's list.
#[inline(always)]
pub fn forget(cookie: u64, address: &FrontendKey) {
    let key = SocketRevnatKey {
        cookie,
        backend: Backend {
            address: address.address,
            port: address.port,
            protocol: address.protocol,
            flags: 0,
        },
        pad: 0,
    };
    let Some(SocketRevnat { frontend, previous }) = noted(&key) else {
        return;
    };
    if frontend != *address {
        let own = SocketRevnat {
            frontend: *address,
            previous,
        };
        // Gone meanwhile: then nothing is noted.
        let _ = SOCKET_REVNAT.insert(&key, &own, BPF_EXIST);
    }
}

/// Shows the frontend that a client asked for in place of the backend that it talks to.
#[inline(always)]
fn show<F: Family>(operation: Operation<F>, counter: Counter) -> Return {
    let Some(FrontendKey {
        address,
        port,
        protocol,
        pad: _,
    }) = operation.address()
    else {
        return PROCEED;
    };
    if Maps::live().is_none() {
        return PROCEED;
    }
    let backend = Backend {
        address,
        port,
        protocol,
        flags: 0,
    };
    let key = SocketRevnatKey {
        cookie: operation.cookie(),
        backend,
        pad: 0,
    };
    if let Some(SocketRevnat { frontend, .. }) = noted(&key) {
        operation.rewrite(frontend.address, frontend.port);
        count(counter);
    }
    PROCEED
}

// SAFETY of all look-ups: copied at once. Of these maps only the socket's own close and the kernel remove; the kernel
// only when they are full, the least recently used elements first, which an element just looked up is not. Should
// 65 536 other sockets or more be noted during a copy, a peer is shown wrongly once, or an entry is left behind.

#[inline(always)]
fn noted(key: &SocketRevnatKey) -> Option<SocketRevnat> {
    // SAFETY: see above.
    unsafe { SOCKET_REVNAT.get(key) }.copied()
}

#[inline(always)]
fn newest(cookie: u64) -> Option<Backend> {
    // SAFETY: see above.
    unsafe { SOCKET_BACKEND.get(cookie) }.copied()
}
