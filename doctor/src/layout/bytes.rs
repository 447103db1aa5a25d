//! Fields of keys and values, by offset.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{destination::Family, report::Map};

/// `N` bytes at an offset; `None` if there are fewer.
pub(super) fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

/// A number of 32 bits as this machine keeps it.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    at(bytes, offset).map(u32::from_ne_bytes)
}

/// A number of 16 bits as this machine keeps it.
pub(super) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    at(bytes, offset).map(u16::from_ne_bytes)
}

/// A number of 16 bits in network order.
pub(super) fn port_at(bytes: &[u8], offset: usize) -> Option<u16> {
    at(bytes, offset).map(u16::from_be_bytes)
}

/// An address in network order.
pub(super) fn address_at(bytes: &[u8], offset: usize, family: Family) -> Option<IpAddr> {
    match family {
        Family::V4 => at(bytes, offset).map(|octets: [u8; 4]| Ipv4Addr::from(octets).into()),
        Family::V6 => at(bytes, offset).map(|octets: [u8; 16]| Ipv6Addr::from(octets).into()),
    }
}

/// Bytes of an address.
pub(super) const fn address_size(family: Family) -> usize {
    match family {
        Family::V4 => 4,
        Family::V6 => 16,
    }
}

/// An address as it lies in a key.
pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Whether a map has keys and values of these sizes.
pub(super) fn is_of(map: &Map, key: usize, value: usize) -> bool {
    let size = |size: u32| usize::try_from(size).ok();
    (size(map.key_size), size(map.value_size)) == (Some(key), Some(value))
}

/// The name that the kernel keeps of a longer one: 15 bytes.
pub(super) fn kept(name: &str) -> &str {
    name.get(..15).unwrap_or(name)
}
