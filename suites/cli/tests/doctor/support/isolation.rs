//! Each test in a process of its own, which enters a cgroup and namespaces of its own.

use std::fs;

use nix::mount::{MsFlags, mount};
use testing::isolation::Own;

use super::Node;

/// Runs a test's body on a [`Node`] of its own. The body must be a closure written in the test function itself: the
/// test's name is taken from its type, and the inner process is this same program with that test selected.
#[track_caller]
pub(crate) fn isolated<F: FnOnce(&Node)>(body: F) {
    let Some(Own { cgroup, folder }) = Own::of(testing::isolation::name_of::<F>()) else {
        return;
    };
    fs::write(cgroup.join("cgroup.procs"), "0").expect("to enter the test's cgroup");
    mount(Some("bpf"), &folder, Some("bpf"), MsFlags::empty(), None::<&str>).expect("a bpffs");
    body(&Node::new(cgroup, folder));
}
