//! `plumbline doctor` on nodes that tests break: each has a process, namespaces and a cgroup of its own.
//!
//! `incident`: two generations of Cilium's maps and programs, made by hand. `asking`: the confirmation of `--fix`.
//! `ours`: two generations of this project's programs. `tail_calls`: programs that are attached nowhere and still run.
//! `exits`: output and exit code without programs or permissions. `support`: the node.

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
