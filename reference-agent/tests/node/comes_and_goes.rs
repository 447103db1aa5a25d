//! Devices and addresses that come and go while the agent runs.

use std::net::{IpAddr, SocketAddr};

use serde_json::json;

use crate::{
    agent::{Api, Node, Serving},
    network::{FAMILIES, Network, UPLINK, device, here, pod},
    objects::{Everything, NODE_PORTS, PORTS, cluster_ips, create_node},
    place::place,
    sockets::{LIMIT, SILENT, ask, serve},
};

#[test]
fn a_pod_that_starts_is_served_and_one_that_goes_is_no_reason() {
    let Some(place) = place() else { return };
    let network = Network::new();
    let family = FAMILIES[0];
    let api = Api::new();
    let Serving { address, .. } = api.serve("127.0.0.1:0".parse().expect("an address"), &["127.0.0.1"]);
    let service = Everything {
        name: "x",
        number: 1,
        spec: json!({}),
        backends: vec![(FAMILIES.map(|family| family.pods[0]), true)],
    };
    api.with(address, async |client| {
        create_node(&client).await;
        service.create(&client).await;
    });
    let node = Node::new(&place, false);
    let agent = node.start(&api.kubeconfig(address), &[]);
    agent.ready();

    // Pods start under the running agent, again and again, and are clients at once.
    let server = pod(0);
    server.run(move || serve(family.pods[0]));
    let to = SocketAddr::new(cluster_ips(1)[0], PORTS[0]);
    for round in 0..3 {
        let client = pod(1);
        node.eventually(|| {
            let asked = client.run(move || ask(family.pods[1], to, SILENT));
            asked.map(drop).map_err(|error| format!("round {round}: {error}"))
        });
        here().remove(device(1)).expect("removed");
        agent.ready();
    }

    // Node ports answer at an address that the host has since.
    let new: IpAddr = "192.0.2.77".parse().expect("an address");
    here().addresses(UPLINK, &[new.into()]).expect("an address");
    node.until_dumped(&["192.0.2.77 -> node"]);
    let to = SocketAddr::new(new, NODE_PORTS[0]);
    let seen = network
        .outside
        .run(move || ask(family.client, to, LIMIT))
        .expect("served");
    assert_eq!((seen.server, seen.seen), (family.pods[0], family.client));
    agent.ready();
}
