//! The datapath on the real kernel: real programs, real sockets.
//!
//! Each test runs in a process of its own, in its own network and mount namespaces, with its own bpffs and in its own
//! cgroup, so that any number of them, and of runs, go on side by side (`support::isolated`). What is found of other
//! loads, and evicted, is tested with the doctor (`doctor/tests/kernel`), with the same `support`.
//!
//! | module | decides |
//! |---|---|
//! | `sockets` | what sockets see: translated, refused, left alone, reversed |
//! | `generations` | a service is switched between backends under load, without a hole |
//! | `restart` | adoption of maps and links, maps of other layouts |
//! | `switched_off` | without socket programs those of an earlier start go |
//! | `sizes` | how many sockets are remembered; maps of other sizes are adopted |
//! | `versions` | sets of maps of older and newer versions give way |
//! | `crash` | what a killed process leaves is put in order |
//! | `ownership` | what is found attached to the cgroup, and whose it is |
//! | `devices` | packet programs at network devices: attached, adopted; packets between namespaces |
//! | `detached` | programs run on packets that go nowhere; what the options say to programs |
//! | `udp` | connected UDP sockets are told that their backend is gone |
//! | `opening` | TCP connections without an answer are ended |
//! | `barrier` | the barrier waits for a program that is running |
//! | `helper` | kernels without `bpf_set_retval` |
//! | `environment` | the errors of a wrong set-up |
#![expect(
    unsafe_code,
    reason = "socket options and system calls that nix lacks; programs are loaded from bytecode"
)]

mod barrier;
mod crash;
mod detached;
mod devices;
mod environment;
mod generations;
mod helper;
mod opening;
mod ownership;
mod restart;
mod sizes;
mod sockets;
mod strict;
mod support;
mod switched_off;
mod udp;
mod versions;
