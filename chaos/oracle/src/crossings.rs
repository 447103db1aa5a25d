//! Packets on a device: how often each crosses it, and which were answered that their hops are used up.
//!
//! A router that sends a packet back to a node, which routes it to that router, makes a loop. Each turn takes a hop, by
//! which it shows: sent once, a packet has one number of hops left in each direction, and so have those that a client
//! sends again.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

use crate::finding::{Finding, Weight};

/// ICMP of IPv4 and of IPv6, as protocol numbers.
pub const ICMP: [u8; 2] = [1, 58];
/// Types of ICMP and ICMPv6 that say that the hops of a packet are used up.
const EXPIRED: [u8; 2] = [11, 3];
/// Types and codes of ICMP and ICMPv6 that say that a packet is too big for the next hop.
const TOO_BIG: [[u8; 2]; 2] = [[3, 4], [2, 0]];

/// A packet on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packet {
    /// Microseconds since the Unix epoch.
    pub time_us: u64,
    /// Sent, or received.
    pub is_sent: bool,
    /// Source.
    pub source: IpAddr,
    /// Destination.
    pub destination: IpAddr,
    /// Protocol number.
    pub protocol: u8,
    /// Bytes from its IP header on. Of what a device is to cut up, all.
    #[serde(default)]
    pub bytes: u32,
    /// Hops that it has left: TTL, or hop limit.
    pub hops: u8,
    /// What tells its flow from others: ports, or the identifier of an echo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<[u16; 2]>,
    /// Type of ICMP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// Code of ICMP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<u8>,
    /// Source and destination of the packet that an ICMP error is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<[IpAddr; 2]>,
}

impl Packet {
    /// Whether it says that the hops of another packet are used up.
    fn is_expiry(&self) -> bool {
        let of = ICMP.iter().zip(EXPIRED);
        let is = |(protocol, kind): (&u8, u8)| self.protocol == *protocol && self.icmp_type == Some(kind);
        self.about.is_some() && of.into_iter().any(is)
    }

    /// Whether it says that a packet to this address is too big for the next hop.
    fn is_too_big(&self, to: IpAddr) -> bool {
        let said = self
            .icmp_type
            .zip(self.icmp_code)
            .map(|(kind, code)| [kind, code]);
        let mut of = ICMP.iter().zip(TOO_BIG);
        let is = |(protocol, kind): (&u8, [u8; 2])| self.protocol == *protocol && said == Some(kind);
        self.about.is_some_and(|[_, about]| about == to) && of.any(is)
    }

    /// Whether it is to an address, and no ICMP error.
    fn is_sent_to(&self, address: IpAddr) -> bool {
        self.destination == address && self.about.is_none()
    }
}

/// How many packets to an address a device has sent.
#[must_use]
pub fn sent_to(packets: &[Packet], address: IpAddr) -> usize {
    packets
        .iter()
        .filter(|packet| packet.is_sent && packet.is_sent_to(address))
        .count()
}

/// How many packets to an address were larger than this.
#[must_use]
pub fn larger_to(packets: &[Packet], address: IpAddr, bytes: u32) -> usize {
    let is = |packet: &&Packet| packet.is_sent_to(address) && packet.bytes > bytes;
    packets.iter().filter(is).count()
}

/// How many ICMP errors said of packets to an address that they are too big for the next hop.
#[must_use]
pub fn too_big_to(packets: &[Packet], address: IpAddr) -> usize {
    packets.iter().filter(|packet| packet.is_too_big(address)).count()
}

/// How many packets of a protocol to an address a device has received.
#[must_use]
pub fn received(packets: &[Packet], address: IpAddr, protocol: u8) -> usize {
    let is = |packet: &&Packet| !packet.is_sent && packet.protocol == protocol && packet.is_sent_to(address);
    packets.iter().filter(is).count()
}

/// No packet to an address crosses the device of this name more than once in one direction, and none is answered that
/// its hops are used up.
#[must_use]
pub fn no_loop(packets: &[Packet], device: &str, address: IpAddr) -> Option<Finding> {
    type Flow = (bool, IpAddr, u8, Option<[u16; 2]>);
    let mut hops: BTreeMap<Flow, BTreeSet<u8>> = BTreeMap::new();
    for packet in packets.iter().filter(|packet| packet.is_sent_to(address)) {
        let flow = (packet.is_sent, packet.source, packet.protocol, packet.ports);
        hops.entry(flow).or_default().insert(packet.hops);
    }
    let expired = packets
        .iter()
        .filter(|packet| packet.is_expiry() && packet.about.is_some_and(|[_, to]| to == address))
        .count();
    let several: Vec<_> = hops.iter().filter(|(_, hops)| hops.len() > 1).collect();
    let worst = several.iter().max_by_key(|(_, hops)| hops.len());
    if worst.is_none() && expired == 0 {
        return None;
    }
    let mut found = format!("{} of {} flows more than once", several.len(), hops.len());
    if let Some(((is_sent, source, protocol, _), hops)) = worst {
        let direction = if *is_sent { "out" } else { "in" };
        found += &format!(
            ", one of protocol {protocol} from {source} {} times {direction}",
            hops.len()
        );
    }
    Some(Finding {
        weight: Weight::Violation,
        subject: format!("packets to {address} at {device}"),
        expected: "each crosses it once in each direction at most, and has hops left".to_owned(),
        found: format!("{found}; {expired} answered that their hops are used up"),
        first: Vec::new(),
        counted: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIP: &str = "192.0.2.1";

    fn packet(is_sent: bool, hops: u8, ports: [u16; 2]) -> Packet {
        Packet {
            time_us: 0,
            is_sent,
            source: "198.51.100.1".parse().unwrap(),
            destination: VIP.parse().unwrap(),
            protocol: 17,
            bytes: 28,
            hops,
            ports: Some(ports),
            icmp_type: None,
            icmp_code: None,
            about: None,
        }
    }

    #[test]
    fn a_packet_is_too_big_for_a_hop_if_an_error_of_its_family_says_so() {
        let vip: IpAddr = VIP.parse().unwrap();
        let sent = Packet {
            bytes: 1281,
            ..packet(true, 64, [1, 7])
        };
        let error = |protocol, kind, code, to: &str| Packet {
            protocol,
            icmp_type: Some(kind),
            icmp_code: Some(code),
            about: Some(["198.51.100.1".parse().unwrap(), to.parse().unwrap()]),
            ..packet(false, 64, [0, 0])
        };
        assert_eq!(
            [1280, 1281].map(|bytes| larger_to(std::slice::from_ref(&sent), vip, bytes)),
            [1, 0]
        );
        let all = [
            error(1, 3, 4, VIP),
            error(1, 3, 3, VIP),
            error(1, 2, 0, VIP),
            error(1, 3, 4, "192.0.2.2"),
            sent,
        ];
        assert_eq!(too_big_to(&all, vip), 1);
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(
            too_big_to(
                &[error(58, 2, 0, "2001:db8::1"), error(58, 3, 4, "2001:db8::1")],
                v6
            ),
            1
        );
    }

    fn judge(packets: &[Packet]) -> Option<String> {
        no_loop(packets, "the uplink of n1", VIP.parse().unwrap()).map(|finding| finding.found)
    }

    #[test]
    fn a_packet_that_is_sent_back_once_or_sent_again_is_no_loop() {
        let once = [packet(false, 63, [1, 7]), packet(true, 62, [1, 7])];
        assert_eq!(judge(&once), None);
        // The same flow again, and another one that came another number of hops.
        let again = [
            packet(false, 63, [1, 7]),
            packet(false, 63, [1, 7]),
            packet(false, 62, [2, 7]),
        ];
        assert_eq!(judge(&again), None);
        assert_eq!(judge(&[]), None);
    }

    #[test]
    fn a_packet_that_comes_again_with_fewer_hops_is_in_a_loop() {
        let turns: Vec<Packet> = (0..5).map(|turn| packet(false, 63 - 2 * turn, [1, 7])).collect();
        let found = judge(&[turns, vec![packet(false, 63, [2, 7])]].concat()).unwrap();
        assert!(found.starts_with("1 of 2 flows more than once"), "{found}");
        assert!(found.contains("5 times in"), "{found}");
    }

    #[test]
    fn an_answer_that_hops_are_used_up_is_one_of_a_loop_and_of_this_address_alone() {
        let expired = |to: &str, protocol, kind| Packet {
            protocol,
            icmp_type: Some(kind),
            about: Some(["198.51.100.1".parse().unwrap(), to.parse().unwrap()]),
            destination: "198.51.100.1".parse().unwrap(),
            ..packet(false, 64, [0, 0])
        };
        let found = judge(&[expired(VIP, 1, 11)]).unwrap();
        assert!(
            found.ends_with("1 answered that their hops are used up"),
            "{found}"
        );
        // Of another address; that a port is closed.
        assert_eq!(judge(&[expired("192.0.2.2", 1, 11), expired(VIP, 1, 3)]), None);
    }

    #[test]
    fn packets_are_counted_by_direction_and_protocol() {
        let all = [
            packet(false, 63, [1, 7]),
            packet(true, 62, [1, 7]),
            packet(true, 62, [2, 7]),
        ];
        let vip = VIP.parse().unwrap();
        assert_eq!(
            (
                received(&all, vip, 17),
                received(&all, vip, 6),
                sent_to(&all, vip)
            ),
            (1, 0, 2)
        );
    }
}
