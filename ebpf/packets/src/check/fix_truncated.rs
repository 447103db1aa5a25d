//! Packets that were cut off and say so: lengths and checksums of what is left.

use std::net::IpAddr;

use lb_abi::{ICMP, ICMPV6, SCTP, TCP};
use pnet_packet::util;

use super::{network, transport};

/// Makes a frame that was cut off one with the length of its IP header, with checksums that are right as far as
/// there are any. A UDP length stays, and so is wrong. `None`: so little is left that there is nothing to mend.
pub fn mend(frame: &[u8]) -> Option<Vec<u8>> {
    let start = frame.len() - super::ip(frame).ok()?.len();
    let mut mended = frame.to_vec();
    let packet = &mut mended[start..];
    let length = packet.len();
    match packet.first()? >> 4 {
        4 if length >= 20 => {
            packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            let header = usize::from(packet[0] & 0xf) * 4;
            let sum = util::checksum(packet.get(..header)?, 5);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        6 if length >= 40 => packet[4..6].copy_from_slice(&(length as u16 - 40).to_be_bytes()),
        _ => return None,
    }
    let Ok(read) = network::read(&mended[start..], network::Depth::Packet) else {
        return Some(mended);
    };
    let (payload, protocol) = (mended.len() - read.payload.len(), read.protocol);
    let (field, sum) = match protocol {
        TCP => (16, transport::internet(&read, 16).to_be_bytes().to_vec()),
        ICMPV6 => (2, transport::internet(&read, 2).to_be_bytes().to_vec()),
        ICMP if matches!(read.source, IpAddr::V4(_)) => {
            (2, util::checksum(read.payload, 1).to_be_bytes().to_vec())
        }
        SCTP => (8, transport::crc32c(read.payload).to_le_bytes().to_vec()),
        _ => return Some(mended),
    };
    let whole = read.first && !read.fragment;
    if let Some(there) = mended.get_mut(payload + field..payload + field + sum.len())
        && whole
    {
        there.copy_from_slice(&sum);
    }
    Some(mended)
}
