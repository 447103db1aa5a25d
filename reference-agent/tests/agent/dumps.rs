//! Golden texts of map contents.

use lb_abi::{
    Address, Backend, Frontend, Service, SlotKey,
    address_flags::{self, LOAD_BALANCER, NODE, VIP},
    frontend_flags,
};
use reference_agent::{
    dump::dump,
    maps::Contents,
    plan::{Perspective, Selection},
    testing::{
        World,
        objects::{address, backend, service, slice},
    },
};

#[test]
fn frontends_with_their_backends_sorted_and_without_ids() {
    let mut world = World::synced();
    world.put_service(service("t/x", "10.96.0.10", &["TCP 443 https", "UDP 53 dns"]));
    world.put_service(service("t/y", "10.96.0.9", &["TCP 80"]));
    world.put_slice(slice("t/2", "x", &["TCP 6443 https"], &["10.0.0.10", "10.0.0.9"]));
    assert_eq!(
        dump(&world.contents()),
        "frontends
TCP 10.96.0.9:80 -> refused
TCP 10.96.0.10:443 -> 10.0.0.9:6443 10.0.0.10:6443
UDP 10.96.0.10:53 -> refused
addresses
10.96.0.9 -> other ports refused
10.96.0.10 -> other ports refused
"
    );
}

#[test]
fn tables_show_their_size_and_a_digest_that_is_the_same_on_every_node() {
    let seen_from = |node: &str, order: [&str; 3]| {
        let mut world = World::seen_as(Perspective {
            node: node.to_owned(),
            selection: Selection::Maglev,
            ..Perspective::default()
        });
        world.sync();
        world.put_service(service("t/x", "10.96.0.1,fd00:96::1", &["TCP 80"]));
        world.put_service(service("t/y", "10.96.0.2", &["SCTP 80"]));
        world.put_slice(slice("t/2", "x", &["TCP 80"], &["fd00::1@node1"]));
        for count in 1..=order.len() {
            world.put_slice(slice("t/1", "x", &["TCP 80"], &order[..count]));
        }
        dump(&world.contents())
    };
    let endpoints = ["10.0.0.7@node1", "10.0.0.8@node2", "10.0.0.9"];
    let dumped = seen_from("node1", endpoints);
    assert_eq!(
        dumped,
        "frontends
TCP 10.96.0.1:80 -> 10.0.0.7:80 10.0.0.8:80 10.0.0.9:80 (maglev table of 1021: 9d5604daa7a17f2e)
TCP [fd00:96::1]:80 -> [fd00::1]:80 (maglev table of 1: 2819a2b48738500c)
SCTP 10.96.0.2:80 -> refused
addresses
10.96.0.1 -> other ports refused
10.96.0.2 -> other ports refused
fd00:96::1 -> other ports refused
"
    );
    let [first, second, third] = endpoints;
    assert_eq!(seen_from("node2", [third, second, first]), dumped);
}

#[test]
fn two_agents_with_other_histories_and_ids_dump_the_same() {
    let mut long = World::synced();
    for count in 1..=5 {
        let listed = &["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4", "1.1.1.5"][..count];
        long.put_slice(slice("t/1", "x", &["TCP 80"], listed));
        long.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
        long.delete_service("t/x");
    }
    long.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.5"]));
    long.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    let mut short = World::synced();
    short.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    short.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.5"]));
    assert_ne!(long.contents(), short.contents());
    assert_eq!(dump(&long.contents()), dump(&short.contents()));
}

#[test]
fn nothing_is_a_headline() {
    assert_eq!(dump(&Contents::default()), "frontends\naddresses\n");
}

#[test]
fn an_address_says_what_becomes_of_other_ports_there() {
    let flags = [
        0,
        VIP,
        LOAD_BALANCER,
        VIP | LOAD_BALANCER,
        NODE,
        NODE | VIP,
        NODE | LOAD_BALANCER,
        address_flags::ALL,
    ];
    let contents = Contents {
        addresses: (0..)
            .map(|last| Address::v4([10, 0, 0, last]))
            .zip(flags)
            .collect(),
        ..Contents::default()
    };
    let text = dump(&contents);
    let lines: Vec<_> = text
        .lines()
        .skip_while(|line| *line != "addresses")
        .skip(1)
        .collect();
    assert_eq!(
        lines[..flags.len()],
        [
            "10.0.0.0 -> other ports passed",
            "10.0.0.1 -> other ports refused",
            "10.0.0.2 -> other ports refused from outside",
            "10.0.0.3 -> other ports refused",
            "10.0.0.4 -> node",
            "10.0.0.5 -> node, other ports refused",
            "10.0.0.6 -> node",
            "10.0.0.7 -> node, other ports refused",
        ]
    );
}

#[test]
fn defects_are_named() {
    let [b1, b2] = ["TCP 1.1.1.1:80", "TCP 1.1.1.2:80"].map(|text| backend(text).value());
    let [f1, f2, f3, f4] = [
        "TCP 10.96.0.1:80",
        "TCP 10.96.0.2:80",
        "TCP 10.96.0.3:80",
        "TCP 10.96.0.1:81",
    ]
    .map(|text| address(text).frontend_key());
    let to = |service| Frontend {
        internal: service,
        external: service,
        flags: 0,
        affinity_seconds: 0,
    };
    let slot = |service, generation, index| SlotKey {
        service,
        generation,
        index,
    };
    let contents = Contents {
        addresses: vec![
            (f1.address, VIP),
            (f2.address, VIP | (address_flags::ALL + 1)),
            (Address::v4([10, 96, 0, 7]), NODE),
            (Address::v4([10, 96, 0, 8]), 0),
        ],
        frontends: vec![
            (f1, to(1)),
            (f2, to(2)),
            (f3, to(9)),
            (
                f4,
                Frontend {
                    flags: frontend_flags::ALL + 1,
                    ..to(1)
                },
            ),
        ],
        services: vec![
            (
                1,
                Service {
                    generation: 4,
                    slots: 3,
                },
            ),
            (
                2,
                Service {
                    generation: 1,
                    slots: u32::MAX,
                },
            ),
            (
                3,
                Service {
                    generation: 1,
                    slots: 0,
                },
            ),
        ],
        slots: vec![
            (slot(1, 3, 0), 1),
            (slot(1, 4, 0), 1),
            (slot(1, 4, 1), 7),
            (slot(1, 4, 2), 5),
        ],
        backends: vec![(1, b1), (2, b1), (3, b2), (5, Backend { protocol: 1, ..b2 })],
        ..Contents::default()
    };
    assert_eq!(
        dump(&contents),
        "frontends
TCP 10.96.0.1:80 -> 1.1.1.1:80
TCP 10.96.0.2:80 -> refused
addresses
10.96.0.1 -> other ports refused
10.96.0.2 -> other ports refused
10.96.0.7 -> node
10.96.0.8 -> other ports passed
established
TCP 1.1.1.1:80
TCP 1.1.1.2:80
defects
frontend FrontendKey { address: 10.96.0.1, port: Port([0, 81]), protocol: 6, pad: 0 }: not written by this version
frontend TCP 10.96.0.3:80: its address is not known
frontend TCP 10.96.0.3:80: its service 9 is missing
frontend TCP 10.96.0.2:80: its service 2 names 4294967295 slots, 0 are there
frontend TCP 10.96.0.1:80: backend 7 of its slot 1 of service 1 generation 4 is missing
frontend TCP 10.96.0.1:80: backend 5 of its slot 2 of service 1 generation 4 is missing
address 10.96.0.2 with flags 0x9: not written by this version
address 10.96.0.8: no frontend has it
service 3: no frontend names it
slot 0 of service 1 generation 3: not current
backend 5: not written by this version
backend 2: TCP 1.1.1.1:80 has a lower number too
"
    );
}
