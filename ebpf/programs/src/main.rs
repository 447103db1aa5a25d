//! The eBPF programs: one thin entry for each hook.
//!
//! ```text
//! connect4, sendmsg4        sock::Operation::destination ─▶ lb_flow::decide ─▶ sock::Operation::send_to | refuse
//!                                     │                                            │
//!                                     └───────────────── REVERSE ◀─────────────────┘ cookie, backend → frontend
//! recvmsg4, getpeername4    sock::Operation::destination ─▶ REVERSE ─▶ sock::Operation::show
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `main.rs` | the entries, and what each verdict does and counts |
//! | `sock.rs` | the only access to the socket operation's context |
//! | `maps.rs` | the maps, and their face for decisions |
//!
//! No code here may panic: a panic has no way out of a program, and the verifier refuses one that could.
#![no_std]
#![no_main]

mod maps;
mod sock;

use aya_ebpf::{macros::cgroup_sock_addr, programs::SockAddrContext};
use lb_abi::{Counter, FrontendKey, ReverseKey};
use lb_flow::{Refusal, Verdict, decide};

use crate::{
    maps::{Maps, count, remember, remembered},
    sock::{Operation, PROCEED, Return},
};

/// A client connects: TCP, or UDP that will send without naming a destination.
#[cgroup_sock_addr(connect4)]
pub fn connect4(context: SockAddrContext) -> Return {
    translate(Operation::new(&context), Hook::Connect)
}

/// A client sends a datagram and names the destination.
#[cgroup_sock_addr(sendmsg4)]
pub fn sendmsg4(context: SockAddrContext) -> Return {
    translate(Operation::new(&context), Hook::Sendmsg)
}

/// A client receives a datagram and asks for its source.
#[cgroup_sock_addr(recvmsg4)]
pub fn recvmsg4(context: SockAddrContext) -> Return {
    reverse(Operation::new(&context), Counter::RecvmsgReversed)
}

/// A client asks for its peer.
#[cgroup_sock_addr(getpeername4)]
pub fn getpeername4(context: SockAddrContext) -> Return {
    reverse(Operation::new(&context), Counter::GetpeernameReversed)
}

/// The hooks at which a destination is chosen.
#[derive(Clone, Copy)]
enum Hook {
    Connect,
    Sendmsg,
}

/// Sends a socket operation to a backend, refuses it, or leaves it alone.
///
/// What a verdict carries is read in its own arm only: before Linux 6.3 the verifier refuses any read of stack that
/// was not written, and a copy of a verdict without a backend would be one.
#[inline(always)]
fn translate(operation: Operation, hook: Hook) -> Return {
    let Some(destination) = operation.destination() else { return PROCEED };
    let Some(maps) = Maps::live() else { return PROCEED };
    match decide(&maps, &destination) {
        Verdict::Pass => {
            count(hook.passed());
            PROCEED
        }
        Verdict::Translate(backend) => {
            count(hook.translated());
            let key = ReverseKey { cookie: operation.cookie(), backend, pad: 0 };
            if remember(&key, &destination).is_err() {
                count(Counter::ReverseFull);
            }
            operation.rewrite(backend.address, backend.port);
            PROCEED
        }
        Verdict::Refuse(refusal) => {
            count(match refusal {
                Refusal::NoBackend => hook.refused(),
                Refusal::Hole => Counter::Hole,
            });
            operation.refuse()
        }
    }
}

impl Hook {
    #[inline(always)]
    const fn passed(self) -> Counter {
        match self {
            Self::Connect => Counter::ConnectPassed,
            Self::Sendmsg => Counter::SendmsgPassed,
        }
    }

    #[inline(always)]
    const fn translated(self) -> Counter {
        match self {
            Self::Connect => Counter::ConnectTranslated,
            Self::Sendmsg => Counter::SendmsgTranslated,
        }
    }

    #[inline(always)]
    const fn refused(self) -> Counter {
        match self {
            Self::Connect => Counter::ConnectRefused,
            Self::Sendmsg => Counter::SendmsgRefused,
        }
    }
}

/// Shows the frontend that a client asked for in place of the backend that it talks to.
#[inline(always)]
fn reverse(operation: Operation, counter: Counter) -> Return {
    let Some(FrontendKey {
        address,
        port,
        protocol,
        pad,
    }) = operation.destination()
    else {
        return PROCEED;
    };
    if Maps::live().is_none() {
        return PROCEED;
    }
    let backend = lb_abi::Backend {
        address,
        port,
        protocol,
        pad,
    };
    if let Some(frontend) = remembered(&ReverseKey {
        cookie: operation.cookie(),
        backend,
        pad: 0,
    }) {
        operation.rewrite(frontend.address, frontend.port);
        count(counter);
    }
    PROCEED
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        /// Is nowhere: `cargo xtask ebpf build` refuses an object that still refers to it, which is one that can panic.
        fn a_program_that_can_panic() -> !;
    }
    // SAFETY: no arguments, no conditions, and never called.
    unsafe { a_program_that_can_panic() }
}

/// The kernel accepts only certain strings here; this one grants all helpers.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
