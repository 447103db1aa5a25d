//! Restarted under load: no connection is lost, no datagram, and no new connection is refused.

use std::{fs, path::PathBuf};

use nix::sys::signal::Signal;

use crate::{
    clients::{self, Clients},
    control::Control,
    flows::{Flows, Manner},
    node::{Node, PROGRAM},
    place::{self, place},
    pod::Pod,
    world::{Protocol, World, addresses},
};

/// As often as the agent is restarted.
const RESTARTS: usize = 20;
/// Answers of each flow, and answers to new clients, between two restarts and while no agent runs.
const ANSWERS: u64 = 20;

#[test]
fn twenty_restarts_under_load_lose_no_connection_and_no_datagram_and_refuse_nobody() {
    let Some(place) = place() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let world = World::new(&[("one", 1, &[1]), ("several", 2, &[2, 3, 4])]);
    let servers: Vec<_> = world.servers().collect();
    let owned: Vec<_> = servers.iter().copied().flat_map(addresses).collect();
    place::loopback(&owned);
    let control = runtime.block_on(async {
        clients::serve(servers).await;
        let control = Control::start(&place.folder).await;
        control.become_(&world).await;
        control
    });
    let pod = Pod::new();
    let node = Node::new(&place, "node", place.cgroup.clone(), &control.kubeconfig).without_probe();
    // The next version, as far as the kernel can tell: another file, loaded anew.
    let upgrade = place.folder.join("upgrade");
    fs::copy(PROGRAM, &upgrade).expect("a copy");
    let programs = [PathBuf::from(PROGRAM), upgrade];

    let mut agent = node.start(&programs[0]);
    node.ready();
    let planned = node.left();
    let clients = Clients::start();
    clients.allow(&[&world], false);
    let mut flows = Flows::default();
    for (protocol, to) in world.served().into_keys() {
        for manner in Manner::ALL {
            if (protocol == Protocol::Tcp) == (manner == Manner::Connection) {
                flows.start("host", manner, to, || ());
                flows.start("pod", manner, to, pod.enter());
            }
        }
    }
    for restart in 1..=RESTARTS {
        // Ordinary ends and crashes, of this version and the next, in turn.
        let signal = [Signal::SIGTERM, Signal::SIGKILL][restart % 2];
        let when = |what: &str| format!("restart {restart} ({signal}): {what}");
        flows.progress(ANSWERS, &when("while an agent runs"));
        agent.end(signal);
        flows.progress(ANSWERS, &when("while none does"));
        agent = node.start(&programs[restart / 2 % 2]);
        node.ready();
        assert_eq!(node.left(), planned, "{}", when("what the next leaves"));
        clients.assert_content(|| when("new clients"));
    }
    flows.progress(ANSWERS, "at the end");
    agent.end(Signal::SIGTERM);
    let (asked, answers) = (clients.answers(), flows.stop());
    clients.stop();
    let (fewest, all) = (answers.values().min(), answers.values().sum::<u64>());
    println!(
        "{RESTARTS} restarts: {} flows with {all} answers (each at least {fewest:?}), {asked} new clients",
        answers.len()
    );
    node.clean_up();
}
