//! The capabilities that the manifest grants are enough, and each of them is needed: without it the agent says what it
//! lacks, and what is lost.

use std::{
    fs::File,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use caps::{CapSet, Capability};
use lb_loader::{HeldProgram, Hook, Manner, attach_legacy, programs_attached};
use nix::sys::signal::Signal;
use rstest::rstest;

use crate::{
    clients::{self, Got, ask},
    control::Control,
    manifest::Manifest,
    node::{Node, PROGRAM, Running},
    place::{self, Place, place},
    world::{World, addresses},
};

/// Nothing that is waited for takes longer.
const LIMIT: Duration = Duration::from_secs(30);
/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Starts an agent as a container runtime would: as root, with these capabilities and no others.
pub(crate) fn start_with(node: &Node, granted: &[String]) -> Running {
    let granted: Vec<Capability> = granted
        .iter()
        .map(|name| name.parse().expect("a capability"))
        .collect();
    // Capabilities are a thread's, and what it starts inherits them.
    thread::scope(|scope| {
        let starter = scope.spawn(|| {
            for capability in caps::runtime::thread_all_supported() {
                if !granted.contains(&capability) {
                    caps::drop(None, CapSet::Bounding, capability).expect("dropped");
                }
            }
            caps::clear(None, CapSet::Inheritable).expect("cleared");
            node.start(Path::new(PROGRAM))
        });
        starter.join().expect("it starts")
    })
}

fn capabilities_of(agent: &Running) -> Vec<String> {
    let process = i32::try_from(agent.pid()).expect("a process id");
    let permitted = caps::read(Some(process), CapSet::Permitted).expect("readable");
    let mut permitted: Vec<String> = permitted
        .into_iter()
        .map(|capability| capability.to_string())
        .collect();
    permitted.sort_unstable();
    permitted
}

struct Served {
    _runtime: tokio::runtime::Runtime,
    node: Node,
    world: World,
}

/// Of the agents of this cgroup.
fn served(place: &Place, cgroup: PathBuf) -> Served {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let world = World::new(&[("one", 1, &[1])]);
    let control = runtime.block_on(async {
        place::loopback(&addresses(1)).await;
        clients::serve([1]).await;
        let control = Control::start(&place.folder).await;
        control.become_(&world).await;
        control
    });
    let node = Node::new(place, "node", cgroup, &control.kubeconfig);
    Served {
        node,
        world,
        _runtime: runtime,
    }
}

#[test]
fn with_the_capabilities_of_the_manifest_the_agent_serves() {
    let Some(place) = place(Duration::from_secs(120)) else {
        return;
    };
    let Served {
        node,
        world,
        _runtime,
    } = served(&place, place.cgroup.clone());
    let mut granted = Manifest::read().capabilities();
    granted.sort_unstable();
    let agent = start_with(&node, &granted);
    node.ready();
    assert_eq!(capabilities_of(&agent), granted);
    for target in world.served().into_keys() {
        assert!(matches!(ask(target), Got::Server(1)), "{target:?}");
    }
    agent.end(Signal::SIGTERM);
    node.clean_up();
}

/// Starts an agent without one of the capabilities, and waits until it says so.
fn expect_said(node: &Node, without: &str, expected: &str) {
    let granted = Manifest::read().capabilities();
    assert!(granted.iter().any(|name| name == without), "{without} is granted");
    let rest: Vec<String> = granted.into_iter().filter(|name| name != without).collect();
    let agent = start_with(node, &rest);
    let begin = Instant::now();
    loop {
        let ready = node.get("/readyz");
        let said = node.said();
        let reasons = ready.as_ref().map_or("", |(_, reasons)| reasons.as_str());
        if reasons.contains(expected) || said.contains(expected) {
            break;
        }
        assert!(begin.elapsed() < LIMIT, "without {without}: {ready:?}\n{said}");
        thread::sleep(POLL);
    }
    drop(agent);
}

#[rstest]
#[case::sys_admin("CAP_SYS_ADMIN", "error: missing CAP_SYS_ADMIN: ")]
#[case::net_admin("CAP_NET_ADMIN", "error: missing CAP_NET_ADMIN: ")]
fn the_agent_ends_without(#[case] capability: &str, #[case] said: &str) {
    let Some(place) = place(Duration::from_secs(120)) else {
        return;
    };
    let served = served(&place, place.cgroup.clone());
    expect_said(&served.node, capability, said);
}

/// A program of an earlier load in a cgroup that the agent's mount does not show.
#[test]
fn stale_programs_in_hidden_cgroups_are_found_with_cap_dac_read_search() {
    const HOOK: Hook = Hook::Connect4;
    let Some(place) = place(Duration::from_secs(120)) else {
        return;
    };
    let hidden = place.cgroup("hidden");
    let shown = place.cgroup("node");
    let served = served(&place, shown.clone());
    let agent = served.node.start(Path::new(PROGRAM));
    served.node.ready();
    let attached = programs_attached(&shown, HOOK, false).expect("the kernel says");
    let stale = HeldProgram::by_id(attached[0]).expect("it is there");
    attach_legacy(&hidden, HOOK, &stale, Manner::MULTI).expect("attached");
    agent.end(Signal::SIGTERM);
    let hidden = File::open(hidden).expect("opened");
    let still = || {
        let path = format!("/proc/self/fd/{}", hidden.as_raw_fd());
        programs_attached(Path::new(&path), HOOK, false).expect("the kernel says")
    };
    let node = served.node.at(place.show_only(&shown));
    expect_said(&node, "CAP_DAC_READ_SEARCH", "grant CAP_DAC_READ_SEARCH");
    assert_eq!(still(), [stale.id()]);
    let agent = start_with(&node, &Manifest::read().capabilities());
    node.ready();
    assert_eq!(still(), [0; 0], "evicted");
    agent.end(Signal::SIGTERM);
    node.clean_up();
}
