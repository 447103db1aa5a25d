//! Our bytes.

use lb_abi::{Address, Service, SlotKey, address_flags, frontend_flags};

use super::*;

const FRONTENDS: u32 = 1;
const ADDRESSES: u32 = 2;
const SERVICES: u32 = 3;
const SLOTS: u32 = 4;
const BACKENDS: u32 = 5;
const META: u32 = 6;

fn maps() -> [Map; 6] {
    [
        map(FRONTENDS, "FRONTENDS", 20, 16),
        map(ADDRESSES, "ADDRESSES", 16, 4),
        map(SERVICES, "SERVICES", 4, 8),
        map(SLOTS, "SLOTS", 12, 4),
        map(BACKENDS, "BACKENDS", 4, 20),
        map(META, "META", 4, 16),
    ]
}

fn meta(abi: u32) -> MemoryBytes {
    let mut bytes = MemoryBytes::default();
    let mut value = lb_abi::MAGIC.to_vec();
    value.extend(abi.to_ne_bytes());
    value.extend([0; 4]);
    bytes.put(META, &0_u32.to_ne_bytes(), &value);
    for id in [FRONTENDS, ADDRESSES, SERVICES, SLOTS, BACKENDS] {
        bytes.empty(id);
    }
    bytes
}

fn frontend(bytes: &mut MemoryBytes, text: &str, internal: u32, external: u32, flags: u32) {
    let key = to(text, From::Socket).destination.frontend_key();
    let mut raw = key.address.octets().to_vec();
    raw.extend(key.port.0);
    raw.extend([key.protocol, key.pad]);
    bytes.put(
        FRONTENDS,
        &raw,
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
    assert_eq!(ask("TCP 192.0.2.1:30080", From::Socket), all(None));
    assert_eq!(ask("TCP 192.0.2.1:22", From::Socket), Answer::NotAService);
    assert_eq!(
        ask("TCP 127.0.0.9:30080", From::Socket),
        all(Some("the client is in the node's own network namespace"))
    );
    assert_eq!(ask("TCP 203.0.113.1:80", From::Socket), Answer::NotAService);
    assert_eq!(tables.frontends(&bytes).expect("readable").found.len(), 5);
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
