//! `plumbline doctor` on nodes that tests break: each in a process, namespaces and a cgroup of its own.
//!
//! `incident`: two generations of Cilium's maps and programs, made by hand. `asking`: the question of `--fix`. `ours`: two
//! generations of our own. `tail_calls`: programs that are attached nowhere and run. `exits`: what it says and how it ends where nothing, or not all, can be looked at. `support`:
//! the node.

#![expect(
    clippy::unwrap_used,
    reason = "a test that can not be staged has failed, and says where"
)]

mod asking;
mod exits;
mod incident;
mod ours;
mod support;
mod tail_calls;
