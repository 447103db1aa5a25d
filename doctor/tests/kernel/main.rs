//! The doctor on the real kernel: what is attached, whose it is, and how it ends.
//!
//! Each test runs in a process, namespaces and a cgroup of its own, with the `support` of the loader's tests.
//!
//! | module | decides |
//! |---|---|
//! | `inventory` | everything attached, of any owner; what earlier loads have left, and how it ends |
//! | `hooks` | every socket hook of an earlier load does harm by itself, and is evicted by itself |
//! | `devices` | what is found at devices, what is evicted, what stays |
//! | `device_leftovers` | what earlier loads have left at devices, here and in other namespaces |
//! | `disciplines` | queueing disciplines, for both |
//! | `ownership` | what stays at the node's cgroup, and what a clean-up leaves |
#![expect(
    unsafe_code,
    reason = "of the loader's tests: a socket option; programs are loaded from bytecode"
)]

mod device_leftovers;
mod devices;
mod disciplines;
mod hooks;
mod inventory;
#[expect(dead_code, reason = "the rest is for the loader's tests")]
#[path = "../../../ebpf/loader/tests/kernel/devices/network.rs"]
mod network;
mod ownership;
#[expect(dead_code, reason = "the rest is for the loader's tests")]
#[path = "../../../ebpf/loader/tests/kernel/sockets/peers.rs"]
mod peers;
#[expect(dead_code, unused_imports, reason = "the rest is for the loader's tests")]
#[path = "../../../ebpf/loader/tests/kernel/support/mod.rs"]
mod support;
#[expect(dead_code, reason = "the rest is for the loader's tests")]
#[path = "../../../ebpf/loader/tests/kernel/sockets/world.rs"]
mod world;

use doctor::{Inventory, Leftovers};
use lb_loader::{CraftedHook, Datapath, DeviceMode, HeldProgram, Options, load_passing};

use self::support::Node;

/// Why a test of links can't be run on older kernels.
const NO_TCX: &str = "this kernel has no TCX (Linux 6.6), so that there is only one way to attach";

/// Opens and attaches to the cgroup, with a way to attach to devices.
fn start(node: &Node, mode: DeviceMode) -> Datapath {
    let options = Options {
        devices: mode,
        ..node.options.clone()
    };
    let mut datapath = Datapath::open(&options).expect("the datapath opens");
    datapath.attach().expect("attached to the cgroup");
    datapath
}

/// What earlier loads have left, as one look sees it.
fn leftovers(datapath: &Datapath) -> Inventory {
    let leftovers = Leftovers::of(datapath).expect("its cgroup");
    leftovers.find(datapath).expect("a look")
}

/// A packet program of another project: it leaves every packet to the programs after it.
fn foreign_packet_program(name: &str) -> HeldProgram {
    load_passing(name, CraftedHook::Device, &[], None).expect("a program that only passes is accepted")
}
