//! Each test in a process, namespaces and a cgroup of its own.

use std::{
    env, fs,
    process::{Child, Stdio},
};

use nix::{
    mount::{MsFlags, mount},
    sys::{prctl, signal::Signal},
};
use test_network::Links;
use testing::isolation::{Own, again, name_of};

use super::Node;

/// Tells a process that a test starts to kill that it is this one.
const VICTIM: &str = "PLUMBLINE_TEST_VICTIM";

/// Runs a test's body on a [`Node`] of its own.
///
/// The body must be a closure written in the test function itself: the test's name is taken from its type, and the
/// inner process is this same program, asked for that test alone.
#[track_caller]
pub(crate) fn isolated<F: FnOnce(&Node)>(body: F) {
    let name = name_of::<F>();
    let victim = env::var_os(VICTIM).is_some();
    let own = if victim {
        // It is where the test is.
        prctl::set_pdeathsig(Signal::SIGKILL).expect("a signal");
        Own::told()
    } else {
        Own::of(name).inspect(enter)
    };
    if let Some(Own { cgroup, folder }) = own {
        body(&Node::new(folder, cgroup, name, victim));
    }
}

/// Starts the test's body once more, on the same node, as the process that is to be killed ([`Node::is_victim`]).
pub(super) fn start_victim(name: &str) -> Child {
    again(name)
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program runs itself")
}

/// Moves this process into the cgroup, and gives it a bpffs and a loopback device.
fn enter(own: &Own) {
    fs::write(own.cgroup.join("cgroup.procs"), "0").expect("to enter the test's cgroup");
    mount(
        Some("bpf"),
        &own.folder,
        Some("bpf"),
        MsFlags::empty(),
        None::<&str>,
    )
    .expect("a bpffs");
    let links = Links::here().expect("netlink");
    links.up("lo").expect("the loopback device up");
}
