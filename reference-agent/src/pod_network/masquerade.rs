//! Masquerades packets of pods to destinations outside of the cluster: one table of nf_tables, as
//!
//! ```text
//! table inet plumbline {
//!   set pods4 { type ipv4_addr; flags interval; elements = { 10.244.1.0/24 } }
//!   set kept4 { type ipv4_addr; flags interval; elements = { 10.244.0.0/16, 192.0.2.1-192.0.2.3, 224.0.0.0/4 } }
//!   chain postrouting {
//!     type nat hook postrouting priority srcnat; policy accept;
//!     meta nfproto ipv4 ip saddr @pods4 ip daddr != @kept4 masquerade to :32768-60999 fully-random
//!   }
//! }
//! ```
//!
//! and the same for IPv6. Connections that are translated already stay so. `inet` tables have chains of this type since
//! Linux 5.2.
//!
//! A transaction that replaces a table is not enough: while the kernel walks the chains, a packet can pass the new chain's
//! place before the change and the old one's after it, and meet neither (some microseconds each time). The first packet of a
//! connection decides for all of them, so that this connection would keep the pod's address. While the table is replaced, a
//! second one, `plumbline-next`, has the same rules.

mod message;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nix::errno::Errno;

use self::message::{Batch, Kind, attribute, nested, number, text};
use super::NAME;

/// `NF_INET_POST_ROUTING` of linux/netfilter.h.
const POST_ROUTING: u32 = 4;
/// `NF_IP_PRI_NAT_SRC` of linux/netfilter_ipv4.h.
const SOURCE_NAT: u32 = 100;
/// `NF_NAT_RANGE_PROTO_SPECIFIED` of linux/netfilter/nf_nat.h: without it the kernel ignores the range of ports, though nft
/// shows it.
const PORTS_SPECIFIED: u32 = 1 << 1;
/// `NF_NAT_RANGE_PROTO_RANDOM_FULLY`: two CPUs do not choose the same port at once.
const RANDOM_FULLY: u32 = 1 << 4;
/// Most ends of ranges in one message, whose attributes hold 64 KiB.
const ELEMENTS: usize = 512;
/// Ports for connections: the default of `ip_local_port_range` (ip_sysctl). Otherwise the kernel would take any from 1024
/// on, such as node ports, and those that the datapath's SNAT takes first. If the datapath has given a port to another
/// client of the same backend, answers to the pod would go to that client.
const FIRST_PORT: u16 = 32_768;
const LAST_PORT: u16 = 60_999;
/// Registers of the two.
const LOWEST: u32 = 1;
const HIGHEST: u32 = 2;
const CHAIN: &str = "postrouting";
/// The table in use while the other one is replaced.
const NEXT: &str = "plumbline-next";
/// Transactions of [`Masquerade::write`].
const TRANSACTIONS: u32 = 3;

/// The packets that are masqueraded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Masquerade {
    /// Sources.
    pub pods: Vec<IpNet>,
    /// Destinations to which they keep their address, beside multicast.
    pub kept: Vec<IpNet>,
}

impl Masquerade {
    /// Replaces the table of the calling thread's network namespace. A connection that begins meanwhile is masqueraded if
    /// both the old and the new rules say so. After a kill in between, the next call completes the change.
    ///
    /// # Errors
    /// The kernel's error; either the old or the new rules are in force.
    pub fn write(&self) -> io::Result<Written> {
        let before = generation()?;
        let mut next = Batch::new();
        self.table(&mut next, NEXT);
        next.send()?;
        let mut own = Batch::new();
        self.table(&mut own, NAME);
        own.send()?;
        let mut over = Batch::new();
        delete(&mut over, NEXT);
        over.send()?;
        Ok(Written {
            masquerade: self.clone(),
            generation: before.wrapping_add(TRANSACTIONS),
        })
    }

    /// Makes a table anew.
    fn table(&self, batch: &mut Batch, table: &str) {
        delete(batch, table);
        batch.add(Kind::NEW_TABLE, &[text(1, table)]);
        let hook = [number(1, POST_ROUTING), number(2, SOURCE_NAT)];
        batch.add(
            Kind::NEW_CHAIN,
            &[text(1, table), text(3, CHAIN), nested(4, &hook), text(7, "nat")],
        );
        for family in [&V4, &V6] {
            let pods = family.of(&self.pods);
            if pods.is_empty() {
                continue;
            }
            let mut kept = family.of(&self.kept);
            kept.push(family.multicast);
            family.set(batch, (table, family.pods), &pods);
            family.set(batch, (table, family.kept), &IpNet::aggregate(&kept));
            family.rule(batch, table);
        }
    }

    /// Whether one of the agent's tables exists.
    ///
    /// # Errors
    /// The kernel's error. A kernel without nf_tables has no table.
    pub fn exists() -> io::Result<bool> {
        Ok(has(NAME)? || has(NEXT)?)
    }

    /// Removes the tables. The result: whether one existed.
    ///
    /// # Errors
    /// The kernel's error. A kernel without nf_tables has no table.
    pub fn remove() -> io::Result<bool> {
        let mut removed = false;
        for table in [NEXT, NAME] {
            let mut batch = Batch::new();
            batch.add(Kind::DELETE_TABLE, &[text(1, table)]);
            removed |= found(batch.send())?;
        }
        Ok(removed)
    }
}

/// Rules that were written, and the generation of the ruleset then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    masquerade: Masquerade,
    /// The generation of the network namespace's ruleset, which every change increments.
    generation: u32,
}

impl Written {
    /// Whether these are the rules for `masquerade`.
    #[must_use]
    pub fn is_of(&self, masquerade: &Masquerade) -> bool {
        self.masquerade == *masquerade
    }

    /// Whether no rule of the network namespace has changed since.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn is_current(&self) -> io::Result<bool> {
        Ok(generation()? == self.generation)
    }
}

/// The generation of the network namespace's ruleset.
fn generation() -> io::Result<u32> {
    Batch::number(Kind::GET_GENERATION, 1)
}

fn has(table: &str) -> io::Result<bool> {
    found(Batch::ask(Kind::GET_TABLE, &[text(1, table)]))
}

/// Deletes a table if it exists: deleting a missing one would abort the transaction.
fn delete(batch: &mut Batch, table: &str) {
    batch.add(Kind::NEW_TABLE, &[text(1, table)]);
    batch.add(Kind::DELETE_TABLE, &[text(1, table)]);
}

/// Whether the table exists; without nf_tables there is none.
fn found(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::EPROTONOSUPPORT | Errno::EOPNOTSUPP | Errno::EINVAL) => Ok(false),
            _ => Err(error),
        },
    }
}

/// A set's name, and its number in the transaction.
type Set = (&'static str, u32);

/// What differs between families.
struct Family {
    /// `NFPROTO_IPV4`, `NFPROTO_IPV6` of linux/netfilter.h.
    protocol: u8,
    /// nft's number of the type of addresses, by which it shows them.
    kind: u32,
    /// Bytes of an address.
    length: u32,
    /// Where source and destination begin in the header.
    source: u32,
    destination: u32,
    multicast: IpNet,
    pods: Set,
    kept: Set,
}

const V4: Family = Family {
    protocol: 2,
    kind: 7,
    length: 4,
    source: 12,
    destination: 16,
    multicast: IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4)),
    pods: ("pods4", 1),
    kept: ("kept4", 2),
};
const V6: Family = Family {
    protocol: 10,
    kind: 8,
    length: 16,
    source: 8,
    destination: 24,
    multicast: IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8)),
    pods: ("pods6", 3),
    kept: ("kept6", 4),
};

impl Family {
    fn of(&self, ranges: &[IpNet]) -> Vec<IpNet> {
        let is_v4 = self.length == V4.length;
        ranges
            .iter()
            .filter(|range| range.addr().is_ipv4() == is_v4)
            .copied()
            .collect()
    }

    /// A set of ranges that are disjoint. Each is an element where it begins, and one where it does no more; what reaches to
    /// the end of all addresses has no such end.
    fn set(&self, batch: &mut Batch, (table, (name, id)): (&str, Set), ranges: &[IpNet]) {
        const INTERVAL: u32 = 4;
        const INTERVAL_END: u32 = 1;
        batch.add(
            Kind::NEW_SET,
            &[
                text(1, table),
                text(2, name),
                number(3, INTERVAL),
                number(4, self.kind),
                number(5, self.length),
                number(10, id),
            ],
        );
        let mut elements = Vec::new();
        for range in ranges {
            let value = |address: &[u8]| nested(1, &[attribute(1, address)]);
            elements.push(nested(1, &[value(&bytes(range.network()))]));
            if let Some(end) = after(range.broadcast()) {
                elements.push(nested(1, &[value(&bytes(end)), number(3, INTERVAL_END)]));
            }
        }
        for some in elements.chunks(ELEMENTS) {
            batch.add(
                Kind::NEW_ELEMENTS,
                &[text(1, table), text(2, name), nested(3, some), number(4, id)],
            );
        }
    }

    /// Linux/netfilter/nf_tables.h has the numbers of expressions' attributes.
    fn rule(&self, batch: &mut Batch, table: &str) {
        const REGISTER: u32 = 1;
        const PROTOCOL_OF_PACKET: u32 = 15;
        const EQUAL: u32 = 0;
        const NETWORK_HEADER: u32 = 1;
        const INVERTED: u32 = 1;
        let address = |offset| {
            let of = [
                number(1, REGISTER),
                number(2, NETWORK_HEADER),
                number(3, offset),
                number(4, self.length),
            ];
            expression("payload", &of)
        };
        let lookup = |(name, id): Set, flags| {
            let of = [
                text(1, name),
                number(2, REGISTER),
                number(4, id),
                number(5, flags),
            ];
            expression("lookup", &of)
        };
        let same = nested(3, &[attribute(1, &[self.protocol])]);
        let expressions = [
            expression("meta", &[number(1, REGISTER), number(2, PROTOCOL_OF_PACKET)]),
            expression("cmp", &[number(1, REGISTER), number(2, EQUAL), same]),
            address(self.source),
            lookup(self.pods, 0),
            address(self.destination),
            lookup(self.kept, INVERTED),
            immediate(LOWEST, FIRST_PORT),
            immediate(HIGHEST, LAST_PORT),
            expression(
                "masq",
                &[
                    number(1, PORTS_SPECIFIED | RANDOM_FULLY),
                    number(2, LOWEST),
                    number(3, HIGHEST),
                ],
            ),
        ];
        batch.add(
            Kind::NEW_RULE,
            &[text(1, table), text(2, CHAIN), nested(4, &expressions)],
        );
    }
}

/// A port in a register, in network order.
fn immediate(register: u32, port: u16) -> Vec<u8> {
    let value = nested(2, &[attribute(1, &port.to_be_bytes())]);
    expression("immediate", &[number(1, register), value])
}

fn expression(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
    nested(1, &[text(1, name), nested(2, data)])
}

fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The address after this one.
fn after(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => v4
            .to_bits()
            .checked_add(1)
            .map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(v6) => v6
            .to_bits()
            .checked_add(1)
            .map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}
