//! Programs of an earlier load, attached beside and below the agent's cgroup, with maps that say what was.

use std::{
    fs,
    io::Read as _,
    net::{IpAddr, SocketAddr, TcpStream},
};

use lb_loader::{ALLOW_MULTI, HeldProgram, Hook, attach_legacy, programs_attached};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::{
    agent::{Api, Node, Serving},
    network::{FAMILIES, Network, pod},
    objects::{Everything, PORTS, cluster_ips, create_node},
    place::place,
    sockets::{LIMIT, serve},
};

#[test]
fn what_an_earlier_load_left_is_gone_when_the_next_agent_is_ready() {
    let Some(place) = place() else { return };
    let _network = Network::new();
    let family = FAMILIES[0];
    let pods = [pod(0), pod(1)];
    for (number, pod) in pods.iter().enumerate() {
        pod.run(move || serve(family.pods[number]));
    }
    let api = Api::new();
    let Serving { address, .. } = api.serve("127.0.0.1:0".parse().expect("an address"), &["127.0.0.1"]);
    let backend = |number: usize| Everything {
        name: "x",
        number: 1,
        spec: json!({}),
        backends: vec![(FAMILIES.map(|family| family.pods[number]), true)],
    };
    api.with(address, async |client| {
        create_node(&client).await;
        backend(0).create(&client).await;
    });
    let node = Node::new(&place, true);
    let vip = SocketAddr::new(cluster_ips(1)[0], PORTS[0]);
    // Whatever the socket shows as its peer: of the leftover only this one hook is there.
    let served = || {
        let mut stream = TcpStream::connect_timeout(&vip, LIMIT).expect("somebody");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("an answer");
        let server = said.split(' ').next().map(str::parse::<IpAddr>);
        server.expect("an answer").expect("an address")
    };

    let agent = node.start(&api.kubeconfig(address), &[]);
    agent.ready();
    assert_eq!(served(), family.pods[0]);
    let attached = programs_attached(&place.cgroup, Hook::Connect4, false).expect("the kernel says");
    let [earlier] = attached[..] else {
        panic!("one program: {attached:?}")
    };
    let earlier = HeldProgram::by_id(earlier).expect("it runs");
    agent.end(Signal::SIGKILL);

    // It stays in the cgroup itself and in a child where clients are, while its pins are removed by hand.
    let child = place.cgroup.join("clients");
    for cgroup in [&place.cgroup, &child] {
        attach_legacy(cgroup, Hook::Connect4, &earlier, ALLOW_MULTI).expect("attached");
    }
    fs::remove_dir_all(node.bpffs().join("plumbline")).expect("the pins are removed");
    assert_eq!(served(), family.pods[0], "the leftover decides");
    api.with(address, async |client| backend(1).create(&client).await);

    let agent = node.start(&api.kubeconfig(address), &[]);
    agent.ready();
    assert_eq!(served(), family.pods[1]);
    assert_eq!(
        programs_attached(&child, Hook::Connect4, false).expect("the kernel says"),
        [0; 0]
    );
    let here = programs_attached(&place.cgroup, Hook::Connect4, false).expect("the kernel says");
    assert!(here.len() == 1 && here[0] != earlier.id(), "{here:?}");
}
