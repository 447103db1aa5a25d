//! Our bytes.

use lb_abi::{Address, AddressRange, Config, Service, SlotKey, SourceKey, address_flags, frontend_flags};

use super::{super::ours::frontend_key, *};

const FRONTENDS: u32 = 1;
const ADDRESSES: u32 = 2;
const SERVICES: u32 = 3;
const SLOTS: u32 = 4;
const BACKENDS: u32 = 5;
const META: u32 = 6;

const CONFIG: u32 = 7;
const SOURCES: u32 = 8;

fn maps() -> [Map; 8] {
    [
        map(FRONTENDS, "FRONTENDS", 20, 16),
        map(ADDRESSES, "ADDRESSES", 16, 4),
        map(SERVICES, "SERVICES", 4, 8),
        map(SLOTS, "SLOTS", 12, 4),
        map(BACKENDS, "BACKENDS", 4, 20),
        map(META, "META", 4, 16),
        map(CONFIG, "CONFIG", 4, size_of::<Config>() as u32),
        map(SOURCES, "SOURCES", 24, 4),
    ]
}

fn meta(abi: u32) -> MemoryBytes {
    let mut bytes = MemoryBytes::default();
    let mut value = lb_abi::MAGIC.to_vec();
    value.extend(abi.to_ne_bytes());
    value.extend([0; 4]);
    bytes.put(META, &0_u32.to_ne_bytes(), &value);
    for id in [FRONTENDS, ADDRESSES, SERVICES, SLOTS, BACKENDS, CONFIG, SOURCES] {
        bytes.empty(id);
    }
    bytes
}

fn frontend(bytes: &mut MemoryBytes, text: &str, internal: u32, external: u32, flags: u32) {
    let key = frontend_key(to(text, From::Socket).destination);
    bytes.put(
        FRONTENDS,
        &key,
        &[internal, external, flags, 0].map(u32::to_ne_bytes).concat(),
    );
}

fn address(bytes: &mut MemoryBytes, octets: [u8; 4], flags: u32) {
    bytes.put(ADDRESSES, &Address::v4(octets).octets(), &flags.to_ne_bytes());
}

fn service(bytes: &mut MemoryBytes, id: u32, ids: &[u32]) {
    let slots = u32::try_from(ids.len()).expect("a few");
    let word = Service { generation: 4, slots }.to_word();
    bytes.put(SERVICES, &id.to_ne_bytes(), &word.to_ne_bytes());
    for (index, backend) in (0..).zip(ids) {
        let SlotKey {
            service,
            generation,
            index,
        } = SlotKey {
            service: id,
            generation: 4,
            index,
        };
        let key = [service, generation, index].map(u32::to_ne_bytes).concat();
        bytes.put(SLOTS, &key, &backend.to_ne_bytes());
    }
}

fn backend(bytes: &mut MemoryBytes, id: u32, octets: [u8; 4]) {
    let mut value = Address::v4(octets).octets().to_vec();
    value.extend(8080_u16.to_be_bytes());
    value.extend([6, 0]);
    bytes.put(BACKENDS, &id.to_ne_bytes(), &value);
}

#[test]
fn the_rules_of_the_datapath_are_kept() {
    let mut bytes = meta(ABI);
    address(&mut bytes, [10, 96, 0, 1], address_flags::VIP);
    address(&mut bytes, [198, 51, 100, 1], address_flags::LOAD_BALANCER);
    address(&mut bytes, [192, 0, 2, 1], address_flags::NODE);
    address(&mut bytes, [127, 0, 0, 1], address_flags::NODE);
    frontend(&mut bytes, "TCP 10.96.0.1:80", 1, 2, 0);
    frontend(&mut bytes, "TCP 10.96.0.1:81", 3, 3, frontend_flags::SILENT);
    frontend(&mut bytes, "TCP 10.96.0.1:82", 1, 0, 0);
    frontend(
        &mut bytes,
        "TCP 10.96.0.1:83",
        1,
        1,
        frontend_flags::SOURCE_RANGES,
    );
    frontend(&mut bytes, "TCP 0.0.0.0:30080", 1, 1, 0);
    service(&mut bytes, 1, &[7, 8, 7]);
    service(&mut bytes, 2, &[8, 9]);
    service(&mut bytes, 3, &[]);
    backend(&mut bytes, 7, [10, 0, 0, 7]);
    backend(&mut bytes, 8, [10, 0, 0, 8]);
    let tables = recognise(&bytes, Whose::Plumbline, &maps()).expect("known");
    let ask = |text: &str, from| tables.ask(&bytes, &to(text, from));
    let both = backends(&["10.0.0.7:8080", "10.0.0.8:8080"]);
    let all = |only_if: Option<&str>| Answer::Backends {
        backends: both.clone(),
        holes: 0,
        only_if: only_if.map(str::to_owned),
    };
    assert_eq!(ask("TCP 10.96.0.1:80", From::Socket), all(None));
    assert_eq!(
        ask("TCP 10.96.0.1:80", From::Outside),
        Answer::Backends {
            backends: backends(&["10.0.0.8:8080"]),
            holes: 1,
            only_if: None
        }
    );
    assert!(matches!(
        ask("TCP 10.96.0.1:81", From::Socket),
        Answer::Refused { .. }
    ));
    assert!(matches!(
        ask("TCP 10.96.0.1:81", From::Outside),
        Answer::Dropped { .. }
    ));
    assert!(
        matches!(ask("TCP 10.96.0.1:82", From::Outside), Answer::Refused { .. }),
        "an unknown port there"
    );
    assert!(matches!(
        ask("TCP 10.96.0.1:83", From::Socket),
        Answer::LeftToPackets { .. }
    ));
    assert_eq!(
        ask("TCP 10.96.0.1:83", From::Outside),
        all(Some("the client is in loadBalancerSourceRanges"))
    );
    assert!(
        matches!(ask("TCP 10.96.0.1:99", From::Socket), Answer::Refused { .. }),
        "an unknown port of a VIP"
    );
    for (from, refused) in [
        (From::Socket, false),
        (From::Inside, false),
        (From::Outside, true),
    ] {
        let answer = ask("TCP 198.51.100.1:99", from);
        assert_eq!(
            matches!(answer, Answer::Refused { .. }),
            refused,
            "an unknown port of a load balancer: {answer}"
        );
        assert_eq!(answer == Answer::NotAService, !refused);
    }
    address(
        &mut bytes,
        [198, 51, 100, 1],
        address_flags::LOAD_BALANCER | address_flags::NODE,
    );
    let ask = |text: &str, from| tables.ask(&bytes, &to(text, from));
    assert_eq!(
        ask("TCP 198.51.100.1:99", From::Outside),
        Answer::NotAService,
        "the node's own"
    );
    assert_eq!(ask("TCP 192.0.2.1:30080", From::Socket), all(None));
    assert_eq!(ask("TCP 192.0.2.1:22", From::Socket), Answer::NotAService);
    assert_eq!(
        ask("TCP 127.0.0.9:30080", From::Socket),
        all(Some("the client is in the node's own network namespace"))
    );
    assert_eq!(ask("TCP 203.0.113.1:80", From::Socket), Answer::NotAService);
    assert_eq!(tables.frontends(&bytes).expect("readable").found.len(), 5);
}

#[test]
fn what_no_service_has_in_a_service_range_is_refused_unless_it_is_the_clusters() {
    let mut bytes = meta(ABI);
    let ranges = [
        AddressRange::new(Address::v4([10, 96, 0, 0]), 12),
        AddressRange::NONE,
    ];
    let mut config = vec![0; std::mem::offset_of!(Config, service_ranges)];
    for range in ranges {
        config.extend(range.address.octets());
        config.extend(range.mask.octets());
    }
    config.resize(size_of::<Config>(), 0);
    bytes.put(CONFIG, &0_u32.to_ne_bytes(), &config);
    let client = SourceKey::client(SourceKey::CLUSTER, Address::v4([10, 96, 0, 7]));
    let mut key = client.prefix_length.to_ne_bytes().to_vec();
    key.extend(client.service);
    key.extend(client.address.octets());
    bytes.put(SOURCES, &key, &1_u32.to_ne_bytes());
    address(&mut bytes, [10, 96, 0, 8], 0);
    let tables = recognise(&bytes, Whose::Plumbline, &maps()).expect("known");
    for from in [From::Socket, From::Inside, From::Outside] {
        for (text, refused) in [
            ("TCP 10.96.0.9:80", true),
            ("TCP 10.111.255.255:80", true),
            ("TCP 10.112.0.0:80", false),
            ("TCP 10.96.0.7:80", false),
            ("TCP 10.96.0.8:80", false),
            ("TCP [fd00:96::1]:80", false),
        ] {
            let answer = tables.ask(&bytes, &to(text, from));
            assert_eq!(
                matches!(answer, Answer::Refused { .. }),
                refused,
                "{text}: {answer}"
            );
        }
    }
}

const ABI: u32 = lb_abi::ABI_VERSION;

#[test]
fn another_version_of_the_abi_is_not_read() {
    for abi in [ABI - 1, ABI + 1] {
        assert_eq!(recognise(&meta(abi), Whose::Plumbline, &maps()), None, "{abi}");
    }
    assert!(recognise(&meta(ABI), Whose::Plumbline, &maps()).is_some());
    assert_eq!(
        recognise(&meta(ABI), Whose::Plumbline, &maps()[1..]),
        None,
        "without FRONTENDS"
    );
}

#[test]
fn every_pinned_map_is_told_by_name_and_sizes() {
    let ours = owner(Whose::Plumbline);
    for name in lb_loader::MapName::PINNED {
        let known = super::super::ours::sizes(name.name());
        let (key, value) = known.unwrap_or_else(|| panic!("{name} is not known here"));
        let size = |bytes: usize| u32::try_from(bytes).expect("a few bytes");
        let found = map(1, name.name(), size(key), size(value));
        assert!(Tables::layout_of(&ours, &found).is_some(), "{name}");
        let other = map(1, name.name(), size(key) + 1, size(value));
        assert_eq!(Tables::layout_of(&ours, &other), None, "{name} of other sizes");
    }
}
