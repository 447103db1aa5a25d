//! The layout, written out: a change here is a change of [`ABI_VERSION`].

use core::mem::{align_of, offset_of, size_of};

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
    layout!(Frontend: 8, align 4, { service: ServiceId = 0, flags: u32 = 4 });
    layout!(Service: 8, align 8, { generation: u32 = 0, slots: u32 = 4 });
    layout!(SlotKey: 12, align 4, { service: ServiceId = 0, generation: u32 = 4, index: u32 = 8 });
    layout!(Backend: 20, align 4, { address: Address = 0, port: Port = 16, protocol: u8 = 18, pad: u8 = 19 });
    layout!(ReverseKey: 32, align 8, { cookie: u64 = 0, backend: Backend = 8, pad: u32 = 28 });
    layout!(Meta: 16, align 4, { magic: [u8; 8] = 0, abi: u32 = 8, pad: u32 = 12 });
    assert_eq!((size_of::<ServiceId>(), size_of::<BackendId>()), (4, 4));
}

#[test]
fn magic_and_version_are_as_pinned() {
    assert_eq!(Meta::CURRENT.magic, [0x70, 0x6c, 0x75, 0x6d, 0x62, 0x6c, 0x6e, 0]);
    assert_eq!(Meta::CURRENT.abi, 1);
}

#[test]
fn capacities_are_as_pinned() {
    use capacity::{BACKENDS, FRONTENDS, REVERSE, SERVICES, SLOTS};
    assert_eq!(
        [FRONTENDS, SERVICES, SLOTS, BACKENDS, REVERSE],
        [65_536, 65_536, 262_144, 65_536, 65_536]
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
