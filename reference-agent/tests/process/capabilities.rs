//! The capabilities that the manifest grants are enough, and each of them is needed: without it the agent says what it
//! lacks, and what is lost.

use std::{
    collections::BTreeSet,
    fs::File,
    net::UdpSocket,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use caps::{CapSet, Capability};
use lb_loader::{ALLOW_MULTI, HeldProgram, Hook, attach_legacy, programs_attached};
use nix::{libc::ECONNABORTED, sys::signal::Signal};
use rstest::rstest;
use testing::patience::LIMIT;

use crate::{
    clients::{self, Got, ask, ask_socket, connected},
    control::Control,
    manifest::{self, Manifest},
    node::{Node, PROGRAM, Running},
    place::{self, Place, Shown, place},
    pod::Pod,
    world::{Protocol, Server, World, addresses},
};

/// Each is needed, as a test here shows.
const SYS_ADMIN: &str = "CAP_SYS_ADMIN";
const NET_ADMIN: &str = "CAP_NET_ADMIN";
const DAC_READ_SEARCH: &str = "CAP_DAC_READ_SEARCH";
const SYS_PTRACE: &str = "CAP_SYS_PTRACE";
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

/// Servers that there are.
const SERVERS: [Server; 3] = [1, 2, 3];

struct Served {
    runtime: tokio::runtime::Runtime,
    control: Control,
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
    place::loopback(&SERVERS.map(addresses).concat());
    let control = runtime.block_on(async {
        clients::serve(SERVERS).await;
        let control = Control::start(&place.folder).await;
        control.become_(&world).await;
        control
    });
    let node = Node::new(place, "node", cgroup, &control.kubeconfig);
    Served {
        runtime,
        control,
        node,
        world,
    }
}

#[test]
fn what_the_manifest_grants_is_what_is_needed() {
    let granted: BTreeSet<String> = Manifest::read().capabilities().into_iter().collect();
    let needed = [SYS_ADMIN, NET_ADMIN, DAC_READ_SEARCH, SYS_PTRACE].map(str::to_owned);
    assert_eq!(granted, BTreeSet::from(needed));
    let rows = manifest::text("README.md");
    let explained = rows
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .map(|(name, _)| format!("CAP_{name}"))
        .filter(|name| name.parse::<Capability>().is_ok());
    assert_eq!(explained.collect::<BTreeSet<_>>(), granted, "README.md");
}

#[test]
fn with_the_capabilities_of_the_manifest_the_agent_serves() {
    let Some(place) = place() else {
        return;
    };
    let Served {
        node,
        world,
        runtime: _runtime,
        ..
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

/// Starts an agent without one of the capabilities.
fn start_without(node: &Node, without: &str) -> Running {
    let granted = Manifest::read().capabilities();
    assert!(granted.iter().any(|name| name == without), "{without} is granted");
    let rest: Vec<String> = granted.into_iter().filter(|name| name != without).collect();
    start_with(node, &rest)
}

/// Starts an agent without one of the capabilities, and waits until it says so.
fn expect_said(node: &Node, without: &str, expected: &str) {
    let agent = start_without(node, without);
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
#[case::sys_admin(SYS_ADMIN, "error: missing CAP_SYS_ADMIN: ")]
#[case::net_admin(NET_ADMIN, "error: missing CAP_NET_ADMIN: ")]
fn the_agent_ends_without(#[case] capability: &str, #[case] said: &str) {
    let Some(place) = place() else {
        return;
    };
    let served = served(&place, place.cgroup.clone());
    expect_said(&served.node, capability, said);
}

/// A program of an earlier load in a cgroup that the agent can't see.
#[rstest]
#[case::by_its_mount(Shown::Bound)]
#[case::by_its_cgroup_namespace(Shown::Namespace)]
fn stale_programs_in_hidden_cgroups_are_found_with_cap_dac_read_search(#[case] how: Shown) {
    const HOOK: Hook = Hook::Connect4;
    let Some(place) = place() else {
        return;
    };
    let hidden = place.cgroup("hidden");
    let shown = place.cgroup("node");
    let served = served(&place, shown.clone());
    let agent = served.node.start(Path::new(PROGRAM));
    served.node.ready();
    let attached = programs_attached(&shown, HOOK, false).expect("the kernel says");
    let stale = HeldProgram::by_id(attached[0]).expect("it is there");
    attach_legacy(&hidden, HOOK, &stale, ALLOW_MULTI).expect("attached");
    agent.end(Signal::SIGTERM);
    let hidden = File::open(hidden).expect("opened");
    let still = || {
        let path = format!("/proc/self/fd/{}", hidden.as_raw_fd());
        programs_attached(Path::new(&path), HOOK, false).expect("the kernel says")
    };
    let node = served.node.at(place.show_only(&shown, how));
    expect_said(&node, DAC_READ_SEARCH, "grant CAP_DAC_READ_SEARCH");
    assert_eq!(still(), [stale.id()]);
    let agent = start_with(&node, &Manifest::read().capabilities());
    node.ready();
    assert_eq!(still(), [0; 0], "evicted");
    agent.end(Signal::SIGTERM);
    node.clean_up();
}

/// A process of a pod. It has all capabilities: more than the agent.
struct Resident(Child);

impl Resident {
    fn of(pod: &Pod) -> Self {
        Self(pod.run(|| Command::new("sleep").arg("infinity").spawn().expect("it starts")))
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        // It has no other end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connected UDP sockets of the host and of a pod.
struct Sockets {
    host: UdpSocket,
    pod: UdpSocket,
}

impl Sockets {
    fn new(world: &World, pod: &Pod) -> Self {
        let targets = world.served().into_keys();
        let mut udp = targets.filter(|(protocol, _)| *protocol == Protocol::Udp);
        let (_, to) = udp.next().expect("a Service with UDP");
        Self {
            host: connected(to).expect("connected"),
            pod: pod.run(move || connected(to).expect("connected")),
        }
    }
}

/// Whether the kernel has ended it for the agent (`SOCK_DESTROY`). Told once.
fn ended(socket: &UdpSocket) -> bool {
    let error = socket.take_error().expect("the kernel says");
    error.is_some_and(|error| error.raw_os_error() == Some(ECONNABORTED))
}

#[test]
fn udp_sockets_of_pods_are_ended_when_their_backend_goes_with_cap_sys_ptrace() {
    let Some(place) = place() else {
        return;
    };
    let served = served(&place, place.cgroup.clone());
    let Served { runtime, node, .. } = &served;
    let pod = Pod::new();
    let _resident = Resident::of(&pod);
    // Its one server leaves, another one comes.
    let replace = |server: Server| {
        let world = World::new(&[("one", 1, &[server])]);
        runtime.block_on(served.control.become_(&world));
        node.until(&format!("server {server} is had"), || {
            let mut targets = world.served().into_keys();
            targets.all(|target| matches!(ask(target), Got::Server(had) if had == server))
        });
        world
    };

    let agent = start_without(node, SYS_PTRACE);
    node.ready();
    let first = Sockets::new(&served.world, &pod);
    assert_eq!(ask_socket(&first.pod).expect("answered"), 1);
    let world = replace(2);
    let second = Sockets::new(&world, &pod);
    node.until("the host's socket is ended", || ended(&first.host));
    replace(3);
    // One after the other: when a socket of the second server is ended, the agent is done with the first one's.
    node.until("the host's next socket is ended", || ended(&second.host));
    assert_eq!(ask_socket(&first.pod).expect("not ended"), 1);
    agent.end(Signal::SIGTERM);

    let agent = start_with(node, &Manifest::read().capabilities());
    node.ready();
    let world = replace(1);
    let third = Sockets::new(&world, &pod);
    assert_eq!(ask_socket(&third.pod).expect("answered"), 1);
    replace(2);
    node.until("the pod's socket is ended", || ended(&third.pod));
    agent.end(Signal::SIGTERM);
    node.clean_up();
}
