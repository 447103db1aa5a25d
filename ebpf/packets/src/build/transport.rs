//! TCP, UDP and SCTP.

use std::net::IpAddr;

use crc::{CRC_32_ISCSI, Crc};
use etherparse::{TcpHeader, UdpHeader};
use lb_abi::{SCTP, TCP, UDP};

use super::{End, Icmp, Packet, pattern};

/// CRC32c (RFC 9260, appendix A).
const CRC32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Where TCP's numbers begin in tables.
const SEQUENCE: u32 = 0x1000_0001;
const ACKNOWLEDGMENT: u32 = 0x2000_0002;

/// What comes behind the IP header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Body {
    Tcp(Tcp),
    Udp(Udp),
    Sctp(Sctp),
    Icmp(Icmp),
    Other(u8, Vec<u8>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tcp {
    ports: [u16; 2],
    sequence: u32,
    acknowledgment: u32,
    flags: u8,
    window: u16,
    options: Vec<u8>,
    data: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Udp {
    ports: [u16; 2],
    checksum: bool,
    data: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sctp {
    ports: [u16; 2],
    checksum: bool,
    chunk: u8,
    value: Vec<u8>,
}

const FIN: u8 = 1;
const SYN: u8 = 1 << 1;
const RST: u8 = 1 << 2;
const PSH: u8 = 1 << 3;
const ACK: u8 = 1 << 4;
const URG: u8 = 1 << 5;
const ECE: u8 = 1 << 6;
const CWR: u8 = 1 << 7;

/// A TCP segment without flags and data.
pub fn tcp(source: End, destination: End) -> Packet {
    let tcp = Tcp {
        ports: [source.1, destination.1],
        sequence: SEQUENCE,
        acknowledgment: 0,
        flags: 0,
        window: 0xfaf0,
        options: Vec::new(),
        data: Vec::new(),
    };
    Packet::new(source.0, destination.0, Body::Tcp(tcp))
}

/// A UDP datagram of 12 bytes.
pub fn udp(source: End, destination: End) -> Packet {
    let udp = Udp {
        ports: [source.1, destination.1],
        checksum: true,
        data: pattern(12),
    };
    Packet::new(source.0, destination.0, Body::Udp(udp))
}

/// An SCTP packet with one chunk of this type, of 16 bytes.
pub fn sctp(source: End, destination: End, chunk: u8) -> Packet {
    let sctp = Sctp {
        ports: [source.1, destination.1],
        checksum: true,
        chunk,
        value: pattern(12),
    };
    Packet::new(source.0, destination.0, Body::Sctp(sctp))
}

impl Packet {
    /// TCP: SYN.
    #[must_use]
    pub fn syn(self) -> Self {
        self.flags(SYN)
    }

    /// TCP: ACK.
    #[must_use]
    pub fn ack(self) -> Self {
        self.flags(ACK)
    }

    /// TCP: PSH.
    #[must_use]
    pub fn push(self) -> Self {
        self.flags(PSH)
    }

    /// TCP: FIN.
    #[must_use]
    pub fn fin(self) -> Self {
        self.flags(FIN)
    }

    /// TCP: RST.
    #[must_use]
    pub fn rst(self) -> Self {
        self.flags(RST)
    }

    /// TCP: URG.
    #[must_use]
    pub fn urgent(self) -> Self {
        self.flags(URG)
    }

    /// TCP: ECE and CWR, which in a SYN ask for explicit congestion notification (RFC 3168, 6.1.1).
    #[must_use]
    pub fn congestion(self) -> Self {
        self.flags(ECE | CWR)
    }

    fn flags(mut self, flags: u8) -> Self {
        let tcp = self.tcp();
        tcp.flags |= flags;
        if flags == ACK {
            tcp.acknowledgment = ACKNOWLEDGMENT;
        }
        self
    }

    /// TCP: sequence and acknowledgment numbers.
    #[must_use]
    pub fn numbers(mut self, sequence: u32, acknowledgment: u32) -> Self {
        let tcp = self.tcp();
        tcp.sequence = sequence;
        tcp.acknowledgment = acknowledgment;
        self
    }

    /// TCP: window.
    #[must_use]
    pub fn window(mut self, window: u16) -> Self {
        self.tcp().window = window;
        self
    }

    /// TCP: options, a multiple of four bytes.
    #[must_use]
    pub fn tcp_options(mut self, options: &[u8]) -> Self {
        self.tcp().options = options.to_vec();
        self
    }

    /// With so many bytes of data.
    #[must_use]
    pub fn data(self, length: usize) -> Self {
        self.exact_data(&pattern(length))
    }

    /// With this data.
    #[must_use]
    pub fn exact_data(mut self, bytes: &[u8]) -> Self {
        let data = match &mut self.body {
            Body::Tcp(tcp) => &mut tcp.data,
            Body::Udp(udp) => &mut udp.data,
            Body::Sctp(sctp) => &mut sctp.value,
            body => panic!("no data of its own: {body:?}"),
        };
        *data = bytes.to_vec();
        self
    }

    /// UDP, SCTP: with a checksum field of 0.
    #[must_use]
    pub fn no_checksum(mut self) -> Self {
        match &mut self.body {
            Body::Udp(udp) => udp.checksum = false,
            Body::Sctp(sctp) => sctp.checksum = false,
            body => panic!("always has a checksum: {body:?}"),
        }
        self
    }

    /// TCP, UDP, ICMP: with a checksum that is wrong by this much, as one's complement has it.
    #[must_use]
    pub fn checksum_off_by(self, off: u16) -> Self {
        let offset = match &self.body {
            Body::Tcp(_) => 16,
            Body::Udp(_) => 6,
            Body::Icmp(_) => 2,
            body => panic!("no checksum of this kind: {body:?}"),
        };
        let right = self.body.bytes(self.ip.source, self.ip.destination);
        let right = u16::from_be_bytes([right[offset], right[offset + 1]]);
        self.transport_bytes(offset, &ones_complement_sum(right, off).to_be_bytes())
    }

    /// SCTP: with a checksum of which these bits are wrong.
    #[must_use]
    pub fn crc_off_by(self, off: u32) -> Self {
        let right = self.body.bytes(self.ip.source, self.ip.destination);
        let field: Vec<u8> = right[8..12]
            .iter()
            .zip(off.to_be_bytes())
            .map(|(byte, off)| byte ^ off)
            .collect();
        self.transport_bytes(8, &field)
    }

    /// UDP: with data of which the checksum comes out as 0, so that 0xffff is sent (RFC 768).
    #[must_use]
    pub fn zero_sum(mut self) -> Self {
        self = self.exact_data(&[0, 0]);
        let payload = self.body.bytes(self.ip.source, self.ip.destination);
        let [.., high, low, _, _] = payload.as_slice() else {
            panic!("a header and two bytes of data")
        };
        // The checksum is the complement of the sum of everything else: added to it, the sum is 0xffff.
        self.exact_data(&[*high, *low])
    }

    fn tcp(&mut self) -> &mut Tcp {
        match &mut self.body {
            Body::Tcp(tcp) => tcp,
            body => panic!("no TCP: {body:?}"),
        }
    }
}

/// The sum of two numbers, with the carry added to it (RFC 1071).
pub(super) const fn ones_complement_sum(one: u16, other: u16) -> u16 {
    let (sum, carry) = one.overflowing_add(other);
    sum + carry as u16
}

impl Body {
    pub(super) const fn protocol(&self) -> u8 {
        match self {
            Self::Tcp(_) => TCP,
            Self::Udp(_) => UDP,
            Self::Sctp(_) => SCTP,
            Self::Icmp(icmp) => icmp.protocol(),
            Self::Other(protocol, _) => *protocol,
        }
    }

    pub(super) fn bytes(&self, source: IpAddr, destination: IpAddr) -> Vec<u8> {
        match self {
            Self::Tcp(tcp) => tcp.bytes(source, destination),
            Self::Udp(udp) => udp.bytes(source, destination),
            Self::Sctp(sctp) => sctp.bytes(),
            Self::Icmp(icmp) => icmp.bytes(source, destination),
            Self::Other(_, payload) => payload.clone(),
        }
    }

    pub(super) fn set_source(&mut self, port: u16) {
        if let Some([source, _]) = self.ports() {
            *source = port;
        }
    }

    pub(super) fn set_destination(&mut self, port: u16) {
        if let Some([_, destination]) = self.ports() {
            *destination = port;
        }
    }

    const fn ports(&mut self) -> Option<&mut [u16; 2]> {
        match self {
            Self::Tcp(tcp) => Some(&mut tcp.ports),
            Self::Udp(udp) => Some(&mut udp.ports),
            Self::Sctp(sctp) => Some(&mut sctp.ports),
            Self::Icmp(_) | Self::Other(..) => None,
        }
    }
}

impl Tcp {
    fn bytes(&self, source: IpAddr, destination: IpAddr) -> Vec<u8> {
        let [from, to] = self.ports;
        let has = |flag| self.flags & flag != 0;
        let mut header = TcpHeader::new(from, to, self.sequence, self.window);
        header.acknowledgment_number = self.acknowledgment;
        header.fin = has(FIN);
        header.syn = has(SYN);
        header.rst = has(RST);
        header.psh = has(PSH);
        header.ack = has(ACK);
        header.urg = has(URG);
        header.ece = has(ECE);
        header.cwr = has(CWR);
        header
            .set_options_raw(&self.options)
            .expect("at most 40 bytes of options");
        let checksum = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                header.calc_checksum_ipv4_raw(source.octets(), destination.octets(), &self.data)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                header.calc_checksum_ipv6_raw(source.octets(), destination.octets(), &self.data)
            }
            ends => panic!("a packet between families: {ends:?}"),
        };
        header.checksum = checksum.expect("at most 64 KiB");
        [header.to_bytes().as_slice(), &self.data].concat()
    }
}

impl Udp {
    fn bytes(&self, source: IpAddr, destination: IpAddr) -> Vec<u8> {
        let [from, to] = self.ports;
        let header = match (source, destination) {
            _ if !self.checksum => UdpHeader::without_ipv4_checksum(from, to, self.data.len()),
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let pseudo = etherparse::Ipv4Header {
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Default::default()
                };
                UdpHeader::with_ipv4_checksum(from, to, &pseudo, &self.data)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let pseudo = etherparse::Ipv6Header {
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Default::default()
                };
                UdpHeader::with_ipv6_checksum(from, to, &pseudo, &self.data)
            }
            ends => panic!("a packet between families: {ends:?}"),
        };
        [header.expect("at most 64 KiB").to_bytes().as_slice(), &self.data].concat()
    }
}

impl Sctp {
    /// Common header and one chunk (RFC 9260, 3).
    fn bytes(&self) -> Vec<u8> {
        let [from, to] = self.ports;
        let mut bytes = Vec::new();
        bytes.extend(from.to_be_bytes());
        bytes.extend(to.to_be_bytes());
        bytes.extend(0xc0de_cafe_u32.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend([self.chunk, 0]);
        let length = u16::try_from(4 + self.value.len()).expect("at most 64 KiB");
        bytes.extend(length.to_be_bytes());
        bytes.extend(&self.value);
        if self.checksum {
            // Least significant byte first (RFC 9260, appendix A).
            let sum = CRC32C.checksum(&bytes).to_le_bytes();
            bytes[8..12].copy_from_slice(&sum);
        }
        bytes
    }
}
