//! The agent's own probe: what another owner's program does to connections before ours turns readiness red, and its
//! end turns it green.

use std::{
    fs,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    thread,
};

use lb_loader::{ALLOW_MULTI, HeldProgram, Hook, attach_legacy, detach_legacy, load_crafted};
use reference_agent::probe::FRONTEND;

use crate::{
    agent::{Agent, Node},
    network::Network,
    place::{Place, place},
};

/// A stranger on loopback.
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// A node whose agent is ready, and the cgroup of the agent, whose programs run before those of the node's.
fn node(place: &Place) -> (Node, PathBuf) {
    fs::create_dir(place.folder.join("objects")).expect("a folder");
    let node = Node::new(place, true);
    (node, place.cgroup.join("agent"))
}

/// `r0 = 0; exit`: the call fails with EPERM.
fn refusing() -> HeldProgram {
    let code = [0xb7, 0x95];
    load_crafted("refusing", Hook::Connect4, &code).expect("a program that refuses is accepted")
}

/// Every connection, to any address, reaches the stranger at the same port.
fn misleading() -> HeldProgram {
    let address = u64::from(u32::from_ne_bytes(STRANGER.octets()));
    let code = [
        // r2 = address; bpf_sock_addr.user_ip4 (offset 4 of r1) = r2; r0 = 1; exit
        0xb7 | 2 << 8 | address << 32,
        0x63 | 0x21 << 8 | 4 << 16,
        0xb7 | 1 << 32,
        0x95,
    ];
    load_crafted("misleading", Hook::Connect4, &code).expect("a program that rewrites is accepted")
}

/// Attached, the agent is not ready and says this; detached, it is.
#[track_caller]
fn breaks_and_heals(node: &Node, agent: &Agent<'_>, cgroup: &Path, program: &HeldProgram, said: &str) {
    attach_legacy(cgroup, Hook::Connect4, program, ALLOW_MULTI).expect("attached");
    let expected = format!("the agent's own probe to {FRONTEND} is not served");
    node.eventually(|| match agent.get("/readyz") {
        Some((503, reasons)) if reasons.contains(&expected) && reasons.contains(said) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    detach_legacy(cgroup, Hook::Connect4, program).expect("detached");
    agent.ready();
}

#[test]
fn what_breaks_connections_before_our_programs_is_told_until_it_is_gone() {
    let Some(place) = place() else { return };
    let _network = Network::new();
    let (node, cgroup) = node(&place);
    let agent = node.start_from("--from", &place.folder.join("objects"), &[]);
    agent.ready();

    breaks_and_heals(&node, &agent, &cgroup, &refusing(), "Operation not permitted");

    // No server; then one that is not this agent.
    breaks_and_heals(&node, &agent, &cgroup, &misleading(), "Connection refused");
    let at = SocketAddr::new(STRANGER.into(), FRONTEND.port());
    let stranger = TcpListener::bind(at).expect("a port");
    thread::spawn(move || {
        for mut stream in stranger.incoming().flatten() {
            // Who is gone wants no answer.
            let _ = stream.write_all(b"sixteen bytes ok");
        }
    });
    breaks_and_heals(
        &node,
        &agent,
        &cgroup,
        &misleading(),
        "the answer came from another server",
    );
}
