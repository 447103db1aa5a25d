//! Differential fuzzing of the socket programs: random calls of real sockets, on the kernel's programs and on a model.
//!
//! The kernel runs these programs for the sockets of a cgroup only (`BPF_PROG_TEST_RUN` refuses them). So the
//! sockets are real, in two network namespaces whose loopback devices have all addresses of backends; servers there
//! tell which of them a connection or datagram has reached.
//!
//! ```text
//! seed ─▶ Case: steps ─┬─ Change ─▶ State ──────▶ maps
//!                      └─ Call ─┬─▶ Kernel: a socket's call, which server was reached, what was shown ─┐
//!                               └─▶ model::permitted: every outcome that is allowed ──────────┴▶ one of them? ─▶ next step
//!                                                                                    └ no ─▶ shrink ─▶ Failure
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `named_address` | [`NamedAddress`]: the addresses that everything is drawn from, and what is behind them |
//! | `initial_services` | the services that every case begins with |
//! | `step` | [`Step`]: changes of maps, calls of sockets; how they are drawn |
//! | `change` | what a change makes of the maps |
//! | `model` | [`permitted`](model::permitted): what a call may do, from the document |
//! | `network` | the namespaces and the servers in them |
//! | `client` | a socket: makes its calls, and sees what comes of them |
//! | `kernel` | [`Kernel`]: the maps, the programs, the sockets |
//! | `run` | [`Fuzzer`]: cases by seed and number, until one differs; the least steps that still do |
//! | `failure` | [`Failure`]: what is printed then |

mod change;
mod client;
mod failure;
mod initial_services;
mod kernel;
pub mod model;
mod named_address;
mod network;
mod run;
mod step;

pub use self::{
    failure::Failure,
    initial_services::base,
    kernel::{CallError, Kernel},
    named_address::NamedAddress,
    run::{Fuzzer, Model, Report},
    step::{Bound, Call, Change, Group, SocketKind, Step, To},
};
