//! Every hook of an earlier load does harm by itself, and is evicted by itself.

use std::{fs, net::SocketAddr, os::fd::OwnedFd};

use doctor::{Evicted, Place, cleanup, evict};
use lb_loader::{ALLOW_MULTI, Datapath, HeldProgram, Hook, Options, attach_legacy, attach_link};

use crate::{
    leftovers,
    peers::{Seen, ask, dial, fails, receive, server, udp_client},
    support::{Node, isolated},
    world::{Family, Protocol, ServicePort, put_node_addresses},
};

/// The families that have hooks of their own.
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
const NODE_PORT: u16 = 30080;

/// The hook of a family, of the two of a kind.
fn of(family: Family, [v4, v6]: [Hook; 2]) -> Hook {
    match family {
        Family::V4 => v4,
        Family::V6 | Family::Mapped => v6,
    }
}

/// An earlier load without pins; its maps are filled by the caller.
fn load(node: &Node, fill: impl FnOnce(&Datapath)) -> Vec<(Hook, HeldProgram)> {
    let options = Options {
        bpffs: node.options.bpffs.join("earlier"),
        ..node.options.clone()
    };
    fs::create_dir_all(&options.bpffs).expect("a folder");
    let datapath = Datapath::open(&options).expect("opened");
    fill(&datapath);
    let hold = |(hook, program): (Hook, &HeldProgram)| {
        (hook, HeldProgram::by_id(program.id()).expect("it is loaded"))
    };
    let programs = datapath.programs().map(hold).collect();
    drop(datapath);
    fs::remove_dir_all(&options.bpffs).expect("unpinned");
    programs
}

/// Attaches one of them, ahead of what is attached later.
fn leave(node: &Node, programs: &[(Hook, HeldProgram)], wanted: Hook) {
    for (hook, program) in programs.iter().filter(|(hook, _)| *hook == wanted) {
        attach_legacy(&node.options.cgroup, *hook, program, ALLOW_MULTI).expect("attached");
    }
}

/// Evicts what is left, which is at one hook alone.
#[track_caller]
fn evict_at(datapath: &Datapath, hooks: &[Hook]) {
    let found = leftovers(datapath).attachments;
    let at: Vec<u32> = found
        .iter()
        .map(|found| match found.place {
            Place::Cgroup { attach_type, .. } => attach_type,
            _ => panic!("expected a cgroup: {found:?}"),
        })
        .collect();
    let expected: Vec<u32> = hooks.iter().map(|hook| hook.attach_type()).collect();
    assert_eq!(at, expected);
    for found in &found {
        assert_eq!(evict(found, false).expect("evicted"), Evicted::Detached);
    }
    assert_eq!(leftovers(datapath).attachments, []);
}

/// How a client asks a service, and which hooks that takes.
const WAYS: [(&str, Protocol, [Hook; 2]); 3] = [
    ("connect, TCP", Protocol::Tcp, [Hook::Connect4, Hook::Connect6]),
    ("connect, UDP", Protocol::Udp, [Hook::Connect4, Hook::Connect6]),
    ("sendmsg", Protocol::Udp, [Hook::Sendmsg4, Hook::Sendmsg6]),
];

fn ask_by(way: &str, protocol: Protocol, family: Family, to: SocketAddr) -> Seen {
    if way != "connect, UDP" {
        return ask(protocol, family, to).expect("an answer");
    }
    let client = udp_client(family);
    client.connect(to).expect("connected");
    client.send(b"who").expect("sent");
    Seen {
        peer: client.peer_addr().expect("a peer"),
        ..receive(&client).expect("an answer")
    }
}

#[test]
fn each_hook_that_sends_clients_on_sends_them_to_the_trap_until_it_is_evicted() {
    isolated(|node| {
        for (way, protocol, hooks) in WAYS {
            for family in FAMILIES {
                let (trap, now) = (server(protocol, family), server(protocol, family));
                let vip = family.cluster_ip(80);
                let programs = load(node, |datapath| {
                    ServicePort::new(datapath, 1, protocol, &[trap]).at(vip);
                });
                let hook = of(family, hooks);
                leave(node, &programs, hook);
                let datapath = node.start();
                ServicePort::new(&datapath, 7, protocol, &[now]).at(vip);
                assert_eq!(
                    ask_by(way, protocol, family, vip).server,
                    trap,
                    "{way} {family:?}"
                );
                evict_at(&datapath, &[hook]);
                let seen = ask_by(way, protocol, family, vip);
                assert_eq!(
                    seen,
                    Seen {
                        server: now,
                        peer: vip
                    },
                    "{way} {family:?}"
                );
                drop(datapath);
                cleanup(&node.options.bpffs, &node.options.cgroup).expect("cleaned up");
            }
        }
    });
}

/// Both reverse hooks of a family.
const REVERSE: [[Hook; 2]; 2] = [
    [Hook::Recvmsg4, Hook::Recvmsg6],
    [Hook::Getpeername4, Hook::Getpeername6],
];

#[test]
fn stale_reverse_hooks_show_a_service_that_is_gone_until_they_are_evicted() {
    isolated(|node| {
        for family in FAMILIES {
            let backend = server(Protocol::Udp, family);
            let (gone, vip) = (family.cluster_ip(53), family.cluster_ip(54));
            let programs = load(node, |datapath| {
                ServicePort::new(datapath, 1, Protocol::Udp, &[backend]).at(gone);
            });
            let reverse = REVERSE.map(|hooks| of(family, hooks));
            let link = |(hook, program): &(Hook, HeldProgram)| -> (Hook, OwnedFd) {
                (
                    *hook,
                    attach_link(&node.options.cgroup, *hook, program).expect("attached"),
                )
            };
            let mut links: Vec<(Hook, OwnedFd)> = programs.iter().map(link).collect();
            let (connected, unconnected) = (udp_client(family), udp_client(family));
            connected.connect(gone).expect("connected");
            unconnected.send_to(b"who", gone).expect("sent");
            assert_eq!(receive(&unconnected).expect("an answer").peer, gone);
            // All but the reverse hooks end.
            links.retain(|(hook, _)| reverse.contains(hook));
            for (hook, _) in programs.iter().filter(|(hook, _)| !reverse.contains(hook)) {
                ends(node, *hook);
            }

            let datapath = node.start();
            ServicePort::new(&datapath, 7, Protocol::Udp, &[backend]).at(vip);
            connected.connect(vip).expect("connected");
            let answered = || {
                unconnected.send_to(b"who", vip).expect("sent");
                receive(&unconnected).expect("an answer").peer
            };
            assert_eq!(connected.peer_addr().expect("a peer"), gone, "{family:?}");
            assert_eq!(answered(), gone, "{family:?}");
            evict_at(&datapath, &reverse);
            assert_eq!(connected.peer_addr().expect("a peer"), vip, "{family:?}");
            assert_eq!(answered(), vip, "{family:?}");
            drop((links, datapath));
            cleanup(&node.options.bpffs, &node.options.cgroup).expect("cleaned up");
        }
    });
}

/// Waits for links whose last holder has gone.
#[track_caller]
fn ends(node: &Node, hook: Hook) {
    let begun = std::time::Instant::now();
    while !lb_loader::programs_attached(&node.options.cgroup, hook, false)
        .expect("the kernel says")
        .is_empty()
    {
        assert!(
            begun.elapsed() < testing::patience::LIMIT,
            "{hook} stays attached"
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_stale_bind_hook_keeps_a_node_port_that_is_free_until_it_is_evicted() {
    isolated(|node| {
        for family in FAMILIES {
            let programs = load(node, |datapath| {
                put_node_addresses(datapath);
                ServicePort::new(datapath, 1, Protocol::Tcp, &[]).at(family.unspecified(NODE_PORT));
            });
            let hook = of(family, [Hook::PostBind4, Hook::PostBind6]);
            leave(node, &programs, hook);
            let datapath = node.start();
            let bind = || std::net::TcpListener::bind(family.loopback(NODE_PORT));
            fails(libc::EADDRINUSE, bind);
            evict_at(&datapath, &[hook]);
            bind().expect("it is nobody's");
            drop(datapath);
            cleanup(&node.options.bpffs, &node.options.cgroup).expect("cleaned up");
        }
    });
}

#[test]
fn a_stale_release_hook_is_found_and_evicted() {
    isolated(|node| {
        let programs = load(node, |_| {});
        leave(node, &programs, Hook::SockRelease);
        let datapath = node.start();
        evict_at(&datapath, &[Hook::SockRelease]);
        let now = server(Protocol::Tcp, Family::V4);
        let vip = ServicePort::new(&datapath, 7, Protocol::Tcp, &[now]).at(Family::V4.cluster_ip(80));
        assert_eq!(dial(vip).expect("a connection").server, now);
    });
}
