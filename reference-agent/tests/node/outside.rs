//! What clients behind the node's devices meet: from outside, and from pods whose sockets no program sees.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use serde_json::json;

use crate::{
    agent::{Api, Node, Serving},
    network::{FAMILIES, Family, Namespace, Network, pod},
    objects::{Everything, NODE_PORTS, PORTS, cluster_ips, create_node, external_ips, load_balancers},
    place::place,
    sockets::{Answer, LIMIT, SILENT, ask, ask_udp, serve},
};

/// Of two backends that are equally likely, one is never met in 2⁻³⁹ of all runs.
const TRIES: usize = 40;

type Ask = fn(IpAddr, SocketAddr, Duration) -> io::Result<Answer>;

/// Both ways to ask, with the port and node port of each, and what a rejection looks like: of UDP the kernel tells it to
/// connected sockets alone.
const WAYS: [(Ask, u16, u16, io::ErrorKind); 2] = [
    (ask, PORTS[0], NODE_PORTS[0], io::ErrorKind::ConnectionRefused),
    (ask_udp, PORTS[1], NODE_PORTS[1], io::ErrorKind::WouldBlock),
];

/// Asks from a namespace so often.
fn asked(client: &Namespace, way: Ask, from: IpAddr, to: SocketAddr, times: usize) -> BTreeSet<Answer> {
    client.run(move || {
        let ask = |_| way(from, to, LIMIT).unwrap_or_else(|error| panic!("{from} asked {to}: {error}"));
        (0..times).map(ask).collect()
    })
}

fn refused(client: &Namespace, way: Ask, from: IpAddr, to: SocketAddr) -> io::ErrorKind {
    client.run(move || way(from, to, SILENT).expect_err("nobody may answer").kind())
}

fn answer(server: IpAddr, seen: IpAddr) -> Answer {
    Answer { server, seen }
}

fn pods_of(family: usize) -> [IpAddr; 2] {
    FAMILIES[family].pods
}

fn both(of: impl Fn(&Family) -> IpAddr) -> [IpAddr; 2] {
    [of(&FAMILIES[0]), of(&FAMILIES[1])]
}

#[test]
fn frontends_of_every_kind_are_served_through_the_nodes_devices() {
    let Some(place) = place() else { return };
    let network = Network::new();
    let pods = [pod(0), pod(1)];
    for family in FAMILIES {
        pods[0].run(move || serve(family.pods[0]));
        network.outside.run(move || serve(family.remote));
    }
    let api = Api::new();
    let Serving { address, .. } = api.serve("127.0.0.1:0".parse().expect("an address"), &["127.0.0.1"]);
    let (here, there) = (both(|family| family.pods[0]), both(|family| family.remote));
    let service = |name, number, spec, backends: &[([IpAddr; 2], bool)]| Everything {
        name,
        number,
        spec,
        backends: backends.to_vec(),
    };
    let everywhere = [(here, true), (there, false)];
    let ranges = json!({"loadBalancerSourceRanges": [
        format!("{}/32", FAMILIES[0].client), format!("{}/128", FAMILIES[1].client),
        format!("{}/32", FAMILIES[0].pods[1]), format!("{}/128", FAMILIES[1].pods[1]),
    ]});
    let affinity = json!({"sessionAffinity": "ClientIP"});
    let services = [
        service("cluster", 1, json!({}), &everywhere),
        service("local", 2, json!({"externalTrafficPolicy": "Local"}), &everywhere),
        service(
            "away",
            3,
            json!({"externalTrafficPolicy": "Local"}),
            &[(there, false)],
        ),
        service("ranged", 4, ranges, &[(here, true)]),
        service("sticky", 5, affinity, &everywhere),
        service("empty", 6, json!({}), &[]),
        service("itself", 7, json!({}), &[(here, true)]),
    ];
    api.with(address, async |client| {
        create_node(&client).await;
        for service in &services {
            service.create(&client).await;
        }
    });
    let node = Node::new(&place, false);
    let agent = node.start(&api.kubeconfig(address), &[]);
    agent.ready();

    for (index, family) in FAMILIES.into_iter().enumerate() {
        let outside = &network.outside;
        for (way, port, node_port, rejected) in WAYS {
            let at = |ips: fn(u8) -> [IpAddr; 2], number: u8| SocketAddr::new(ips(number)[index], port);
            let node_port = |number: u8| SocketAddr::new(family.node, node_port + u16::from(number) - 1);
            let locally = answer(family.pods[0], family.client);
            let remotely = answer(family.remote, family.node);

            // Policy Cluster: all backends serve; the backend of another node sees this node.
            for to in [node_port(1), at(load_balancers, 1), at(external_ips, 1)] {
                let seen = asked(outside, way, family.client, to, TRIES);
                assert_eq!(seen, [locally, remotely].into(), "{to} from outside");
            }
            // Policy Local: the local backend alone, which sees the client; none: silence, so that another node is asked.
            for to in [node_port(2), at(load_balancers, 2), at(external_ips, 2)] {
                assert_eq!(
                    asked(outside, way, family.client, to, 8),
                    [locally].into(),
                    "{to} from outside"
                );
            }
            let silent = refused(outside, way, family.client, at(load_balancers, 3));
            assert!(
                matches!(silent, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
                "{silent}"
            );
            // Inside, a Local policy of external frontends is none.
            let to = at(load_balancers, 3);
            let seen = asked(&pods[1], way, family.pods[1], to, 4);
            assert_eq!(
                seen.iter().map(|seen| seen.server).collect::<Vec<_>>(),
                [family.remote],
                "{to} from a pod"
            );

            // Ranges of clients: from outside and from pods.
            let to = at(load_balancers, 4);
            assert_eq!(asked(outside, way, family.client, to, 4), [locally].into());
            let silent = refused(outside, way, family.other, to);
            assert!(
                matches!(silent, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
                "{silent}"
            );
            assert_eq!(
                asked(&pods[1], way, family.pods[1], to, 4),
                [answer(family.pods[0], family.pods[1])].into()
            );
            let silent = refused(&pods[0], way, family.pods[0], to);
            assert!(
                matches!(silent, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
                "{silent}"
            );
            // Node ports and external IPs are not restricted.
            for to in [node_port(4), at(external_ips, 4)] {
                assert_eq!(
                    asked(outside, way, family.other, to, 4),
                    [answer(family.pods[0], family.other)].into()
                );
            }

            // Affinity: each client has one backend, whatever port it comes from.
            for from in [family.client, family.other] {
                let seen = asked(outside, way, from, at(load_balancers, 5), TRIES);
                assert_eq!(seen.len(), 1, "{from} is served by {seen:?}");
            }
            // No backend: refused at once.
            assert_eq!(
                refused(outside, way, family.client, at(load_balancers, 6)),
                rejected
            );

            // From pods, at cluster IPs; a pod that is its own backend sees the node.
            let to = at(cluster_ips, 7);
            assert_eq!(
                asked(&pods[1], way, family.pods[1], to, 4),
                [answer(pods_of(index)[0], family.pods[1])].into()
            );
            assert_eq!(
                asked(&pods[0], way, family.pods[0], to, 4),
                [answer(pods_of(index)[0], family.node)].into()
            );
        }
    }
    agent.ready();
}
