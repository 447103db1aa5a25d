//! Masquerading of pods' packets to outside of the cluster: source addresses of connections while rules are written, and changed rules.

use std::{
    iter,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use ipnet::IpNet;
use reference_agent::pod_network::Masquerade;

use crate::{
    network::{FAMILIES, Network, pod},
    place::place,
};

#[test]
fn whoever_leaves_the_cluster_has_the_nodes_address_and_a_port_of_sockets_whenever_rules_are_written() {
    /// At least, of each family. A transaction in the place of three loses about one of 5,000 for each that is done meanwhile.
    const CONNECTIONS: usize = 20_000;
    /// How often rules are written meanwhile, at least.
    const WRITTEN: usize = 20;
    let Some(_place) = place() else { return };
    let network = Network::new();
    let client = pod(0);
    let masquerade = Masquerade {
        pods: FAMILIES.map(|family| IpNet::from(family.pods[0])).to_vec(),
        kept: Vec::new(),
    };
    masquerade.write().expect("written");
    for family in FAMILIES {
        let (to, own) = (SocketAddr::new(family.client, 9), family.pods[0]);
        let (tell, seen) = mpsc::channel();
        network.outside.run(move || {
            let socket = UdpSocket::bind(to).expect("a socket");
            thread::spawn(move || {
                let mut buffer = [0; 8];
                // The receiver is gone at the end of the test.
                while let Ok((_, from)) = socket.recv_from(&mut buffer)
                    && tell.send(from).is_ok()
                {}
            });
        });
        let (sent, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, until) = (Arc::clone(&sent), Arc::clone(&over));
        client.run(move || {
            thread::spawn(move || {
                while !until.load(Relaxed) {
                    let socket = UdpSocket::bind((own, 0)).expect("a socket");
                    socket.send_to(b"here", to).expect("sent");
                    counted.fetch_add(1, Relaxed);
                }
            });
        });
        let mut written = 0;
        while written < WRITTEN || sent.load(Relaxed) < CONNECTIONS {
            masquerade.write().expect("written");
            written += 1;
        }
        over.store(true, Relaxed);
        let seen: Vec<SocketAddr> =
            iter::from_fn(|| seen.recv_timeout(Duration::from_millis(500)).ok()).collect();
        assert!(seen.len() > CONNECTIONS / 2, "{} came", seen.len());
        let is_well =
            |from: &&SocketAddr| from.ip() == family.node && (32_768..=60_999).contains(&from.port());
        let astray: Vec<_> = seen.iter().filter(|from| !is_well(from)).collect();
        assert!(
            astray.is_empty(),
            "{} of {}: {:?}",
            astray.len(),
            seen.len(),
            astray.first()
        );
    }
    assert!(Masquerade::remove().expect("removed"));
    assert!(!Masquerade::exists().expect("asked"));
}

#[test]
fn rules_stand_until_somebody_changes_one() {
    let Some(_place) = place() else { return };
    let _network = Network::new();
    let masquerade = |range: &str| Masquerade {
        pods: vec![range.parse().expect("a range")],
        kept: Vec::new(),
    };
    let (one, other) = (masquerade("10.244.1.0/24"), masquerade("fd00:1::/64"));
    let written = one.write().expect("written");
    assert!(written.is_of(&one) && !written.is_of(&other));
    assert!(
        written.is_current().expect("asked"),
        "nothing was changed on the way"
    );
    let again = other.write().expect("written");
    assert!(!written.is_current().expect("asked") && again.is_current().expect("asked"));
    assert!(Masquerade::remove().expect("removed"));
    assert!(!again.is_current().expect("asked"));
    assert!(!Masquerade::remove().expect("asked"), "there is none");
}
