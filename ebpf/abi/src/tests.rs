//! The layout, written out: a change here is a change of [`ABI_VERSION`].

use core::{
    mem::{align_of, offset_of, size_of},
    net::{IpAddr, Ipv4Addr},
};

use super::*;

/// Size, alignment, and the offset of each field in turn; the fields' sizes add up to the whole, so that there
/// is no padding.
macro_rules! layout {
    ($type:ident: $size:literal, align $align:literal, { $($field:tt: $fieldtype:ty = $offset:literal),+ $(,)? }) => {
        assert_eq!(size_of::<$type>(), $size, concat!("size of ", stringify!($type)));
        assert_eq!(align_of::<$type>(), $align, concat!("alignment of ", stringify!($type)));
        let mut end = 0;
        $(
            assert_eq!(offset_of!($type, $field), $offset, concat!(stringify!($type), ".", stringify!($field)));
            assert_eq!(end, $offset, concat!("hole before ", stringify!($type), ".", stringify!($field)));
            end = $offset + size_of::<$fieldtype>();
        )+
        assert_eq!(end, $size, concat!("hole at the end of ", stringify!($type)));
    };
}

#[test]
fn every_size_and_offset_is_as_pinned() {
    layout!(Address: 16, align 4, { 0: [u32; 4] = 0 });
    layout!(Port: 2, align 1, { 0: [u8; 2] = 0 });
    layout!(FrontendKey: 20, align 4, { address: Address = 0, port: Port = 16, protocol: u8 = 18, pad: u8 = 19 });
    layout!(Frontend: 16, align 4, {
        internal: ServiceId = 0, external: ServiceId = 4, flags: u32 = 8, affinity_seconds: u32 = 12,
    });
    layout!(Service: 8, align 8, { generation: u32 = 0, slots: u32 = 4 });
    layout!(SlotKey: 12, align 4, { service: ServiceId = 0, generation: u32 = 4, index: u32 = 8 });
    layout!(Backend: 20, align 4, { address: Address = 0, port: Port = 16, protocol: u8 = 18, flags: u8 = 19 });
    layout!(SocketRevnatKey: 32, align 8, { cookie: u64 = 0, backend: Backend = 8, pad: u32 = 28 });
    layout!(SocketRevnat: 40, align 4, { frontend: FrontendKey = 0, previous: Backend = 20 });
    layout!(ChosenKey: 32, align 8, { cookie: u64 = 0, frontend: FrontendKey = 8, pad: u32 = 28 });
    layout!(Chosen: 8, align 4, { service: ServiceId = 0, backend: BackendId = 4 });
    layout!(SourceKey: 24, align 4, { prefix_length: u32 = 0, service: [u8; 4] = 4, address: Address = 8 });
    layout!(Tuple: 40, align 4, {
        source: Address = 0, destination: Address = 16, source_port: Port = 32, destination_port: Port = 34,
        protocol: u8 = 36, pad: [u8; 3] = 37,
    });
    layout!(Flow: 72, align 8, {
        to: Tuple = 0, seen: u32 = 40, last_seen: u32 = 44, service: ServiceId = 48, backend: BackendId = 52,
        flags: u32 = 56, pad: u32 = 60, claim: u64 = 64,
    });
    layout!(FragmentKey: 40, align 4, {
        source: Address = 0, destination: Address = 16, id: [u8; 4] = 32, protocol: u8 = 36, pad: [u8; 3] = 37,
    });
    layout!(Ports: 12, align 4, { source: Port = 0, destination: Port = 2, seconds: u32 = 4, held: u32 = 8 });
    layout!(HeldKey: 44, align 4, { datagram: FragmentKey = 0, number: u32 = 40 });
    layout!(Held: 2056, align 4, { length: u32 = 0, seconds: u32 = 4, bytes: [u8; 2048] = 8 });
    layout!(AffinityKey: 24, align 4, { service: ServiceId = 0, kind: u32 = 4, client: Address = 8 });
    layout!(Affinity: 8, align 4, { backend: BackendId = 0, seconds: u32 = 4 });
    layout!(Traffic: 32, align 8, { connections: u64 = 0, packets: u64 = 8, bytes: u64 = 16, pad: u64 = 24 });
    layout!(Config: 192, align 8, {
        own_cgroup: u64 = 0, node_netns: u64 = 8, node_v4: Address = 16, node_v6: Address = 32,
        snat_first: u16 = 48, snat_last: u16 = 50, local_first: u16 = 52, local_last: u16 = 54,
        rejects_per_second: u32 = 56, pad: u32 = 60, service_ranges: [AddressRange; 4] = 64,
    });
    layout!(AddressRange: 32, align 4, { address: Address = 0, mask: Address = 16 });
    layout!(Meta: 16, align 4, { magic: [u8; 8] = 0, abi: u32 = 8, pad: u32 = 12 });
    assert_eq!((size_of::<ServiceId>(), size_of::<BackendId>()), (4, 4));
}

#[test]
fn magic_and_version_are_as_pinned() {
    assert_eq!(Meta::CURRENT.magic, [0x70, 0x6c, 0x75, 0x6d, 0x62, 0x6c, 0x6e, 0]);
    assert_eq!(Meta::CURRENT.abi, 3);
}

#[test]
fn capacities_are_as_pinned() {
    use capacity::*;
    assert_eq!(
        [FRONTENDS, ADDRESSES, SERVICES, SLOTS, BACKENDS, SOURCES, KEPT],
        [65_536, 65_536, 65_536, 262_144, 65_536, 65_536, 64]
    );
    assert_eq!(
        [
            SOCKETS_LEAST,
            SOCKETS_MOST,
            AFFINITY,
            FRAGMENTS,
            HELD,
            CONNTRACK_LEAST,
            CONNTRACK_MOST
        ],
        [65_536, 4_194_304, 65_536, 8_192, 1_024, 16_384, 8_388_608]
    );
}

#[test]
fn counters_are_numbered_without_gaps() {
    for (index, counter) in Counter::ALL.into_iter().enumerate() {
        assert_eq!(counter as usize, index, "{counter:?}");
    }
}

#[test]
fn addresses_and_ports_are_in_network_order() {
    let address = Address::v4([10, 96, 0, 1]);
    assert_eq!(
        address.octets(),
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 96, 0, 1]
    );
    assert_eq!(address.last4(), [10, 96, 0, 1]);
    assert_eq!(Port::new(0x1f90).0, [0x1f, 0x90]);
    assert_eq!(Port::new(8080).get(), 8080);
}

#[test]
fn addresses_come_back_in_the_family_they_had() {
    for text in [
        "10.96.0.1",
        "0.0.0.0",
        "255.255.255.255",
        "fd00::1",
        "::",
        "2001:db8::a60:1",
    ] {
        let Ok(ip) = text.parse::<IpAddr>() else {
            panic!("{text} is no address")
        };
        assert_eq!(IpAddr::from(Address::from(ip)), ip);
    }
}

#[test]
fn an_ipv4_mapped_address_is_the_ipv4_address() {
    let mapped = IpAddr::V6(Ipv4Addr::new(10, 96, 0, 1).to_ipv6_mapped());
    assert_eq!(Address::from(mapped), Address::v4([10, 96, 0, 1]));
    assert_eq!(
        IpAddr::from(Address::from(mapped)),
        IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1))
    );
}

#[test]
fn a_service_is_one_word() {
    let service = Service {
        generation: 0x0102_0304,
        slots: 0x0506_0708,
    };
    assert_eq!(Service::from_word(service.to_word()), service);
    let mut bytes = [0; 8];
    bytes[offset_of!(Service, generation)..][..4].copy_from_slice(&service.generation.to_ne_bytes());
    bytes[offset_of!(Service, slots)..][..4].copy_from_slice(&service.slots.to_ne_bytes());
    assert_eq!(
        service.to_word().to_ne_bytes(),
        bytes,
        "the word's bytes are the structure's"
    );
    assert_eq!(Service::default().to_word(), 0, "an absent service port is zero");
}

#[test]
fn counters_have_names_of_their_own() {
    for counter in Counter::ALL {
        let same = Counter::ALL
            .into_iter()
            .filter(|other| other.name() == counter.name());
        assert_eq!(same.count(), 1, "{counter:?}");
    }
}

#[test]
fn loopback_is_a_net_in_ipv4_and_an_address_in_ipv6() {
    for (text, expected) in [
        ("127.0.0.1", true),
        ("127.255.3.4", true),
        ("128.0.0.1", false),
        ("::1", true),
        ("::2", false),
        ("::", false),
    ] {
        let Ok(ip) = text.parse::<IpAddr>() else {
            panic!("{text} is no address")
        };
        assert_eq!(Address::from(ip).is_loopback(), expected, "{text}");
    }
    assert_eq!(
        IpAddr::from(Address::LOOPBACK_V6),
        IpAddr::V6(core::net::Ipv6Addr::LOCALHOST)
    );
    assert_eq!(
        IpAddr::from(Address::LOOPBACK_V4),
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    );
    assert!(Address::UNSPECIFIED_V4.is_v4() && !Address::UNSPECIFIED_V6.is_v4());
}

#[test]
fn a_range_of_clients_compares_the_service_first() {
    let v4 = SourceKey::range(1, Address::v4([192, 0, 2, 0]), 24);
    assert_eq!((v4.prefix_length, v4.service), (32 + 96 + 24, [0, 0, 0, 1]));
    assert_eq!(SourceKey::range(1, Address::UNSPECIFIED_V6, 0).prefix_length, 32);
    assert_eq!(SourceKey::client(1, v4.address).prefix_length, 160);
}

#[test]
fn the_inverse_of_the_inverse_is_the_tuple() {
    let tuple = Tuple {
        source: Address::v4([1, 2, 3, 4]),
        destination: Address::v4([5, 6, 7, 8]),
        source_port: Port::new(9),
        destination_port: Port::new(10),
        protocol: TCP,
        pad: [0; 3],
    };
    assert_ne!(tuple.inverse(), tuple);
    assert_eq!(tuple.inverse().inverse(), tuple);
}

#[test]
fn a_member_is_told_from_a_slot() {
    let member = SlotKey::member(7, 3, 9);
    assert_eq!((member.service, member.generation), (7, 3));
    assert!(member.index > capacity::SLOTS);
    assert_ne!(member.index, SlotKey::member(7, 3, 10).index);
}

#[test]
fn a_range_has_the_addresses_that_begin_as_it_does() {
    let address = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
    for (range, length, inside, outside) in [
        (
            "10.96.0.0",
            12,
            &["10.96.0.0", "10.111.255.255"][..],
            &["10.95.255.255", "10.112.0.0", "::a60:0"][..],
        ),
        ("10.96.1.7", 12, &["10.96.0.1"], &["10.112.0.0"]),
        ("10.96.0.0", 32, &["10.96.0.0"], &["10.96.0.1"]),
        ("0.0.0.0", 0, &["192.0.2.1"], &["fd00::1"]),
        ("fd00:1::", 112, &["fd00:1::ffff"], &["fd00:1::1:0", "10.96.0.1"]),
        ("fd00:1::", 33, &["fd00:1:7fff::"], &["fd00:1:8000::"]),
        ("8000::", 1, &["fd00::1"], &["::1", "10.96.0.1"]),
    ] {
        let range = AddressRange::new(address(range), length);
        for inside in inside {
            assert!(range.contains(address(inside)), "{range:?} {inside}");
        }
        for outside in outside {
            assert!(!range.contains(address(outside)), "{range:?} {outside}");
        }
    }
    assert!(
        !AddressRange::NONE.contains(address("10.96.0.1")) && !AddressRange::NONE.contains(address("::1"))
    );
}
