//! The paths of a packet through the programs.

use std::net::IpAddr;

use lb_abi::{Counter, Frontend, TCP, address_flags, seen};
use lb_loader::DeviceHook::{self, NodeEgress, NodeIngress, PodEgress, PodIngress};
use lb_packets::{
    build::{End, Packet, tcp, udp},
    table::{Entry, Given, connection},
    test_node::{Addresses, POD_A, UPLINK, V4, V6},
};

/// What a packet that is none of a service's should cost at most, and one of a known flow, in nanoseconds.
const PASSED: Option<u64> = Some(50);
const HIT: Option<u64> = Some(130);

/// As often as packets pass or are translated in one measurement.
const OFTEN: u32 = 2000;
/// The same, where each time costs a hop of 255.
const HOPS: u32 = 200;
/// Frontends that lead from one to the next, and flows that are opened in one measurement.
const CHAIN: u16 = 200;
/// Their first port.
const FIRST_PORT: u16 = 1000;

/// ARP.
const ARP: u16 = 0x0806;

/// A packet, what it meets in the maps, and how it counts.
pub(super) struct Path {
    pub(super) name: &'static str,
    pub(super) family: &'static str,
    pub(super) hook: DeviceHook,
    pub(super) device: u32,
    pub(super) packet: Vec<u8>,
    pub(super) counter: Counter,
    pub(super) repeat: u32,
    pub(super) entries: Vec<Entry>,
    /// Leaves flows that are forgotten before it is measured again.
    pub(super) opens: bool,
    pub(super) aim: Option<u64>,
}

/// The path of a packet that is not even IP, many times and once.
pub(super) fn nothing() -> (Path, Path) {
    let path = |repeat| Path { repeat, ..not_ip() };
    (path(OFTEN), path(1))
}

/// All of them.
pub(super) fn all() -> Vec<Path> {
    let mut all = vec![not_ip()];
    for (family, at) in [("IPv4", &V4), ("IPv6", &V6)] {
        let paths = Paths { family, at };
        all.extend([NodeIngress, NodeEgress, PodIngress, PodEgress].map(|hook| paths.passed(hook)));
        all.extend([
            paths.forward_dnat(),
            paths.reply_dnat(NodeEgress),
            paths.reply_dnat(PodEgress),
            paths.forward_snat(),
            paths.reply_snat(),
            paths.forward_routed(),
            paths.miss_dnat(),
            paths.miss_snat(),
            paths.reset(),
            paths.unreachable(),
            paths.dropped(),
        ]);
    }
    all
}

fn not_ip() -> Path {
    let packet = tcp((V4.client, 1), (V4.stranger, 1)).ether_type(ARP);
    Paths {
        family: "–", at: &V4
    }
    .path(
        "not IP: the cost of measuring",
        NodeIngress,
        &packet,
        Counter::PacketPassed,
    )
}

/// The paths of one family.
struct Paths {
    family: &'static str,
    at: &'static Addresses,
}

impl Paths {
    fn path(&self, name: &'static str, hook: DeviceHook, packet: &Packet, counter: Counter) -> Path {
        let device = match hook {
            NodeIngress | NodeEgress => UPLINK,
            PodIngress | PodEgress => POD_A,
        };
        Path {
            name,
            family: self.family,
            hook,
            device,
            packet: packet.bytes(),
            counter,
            repeat: OFTEN,
            entries: Vec::new(),
            opens: false,
            aim: None,
        }
    }

    const fn client(&self) -> End {
        (self.at.client, 40_000)
    }

    /// A segment in the middle of a connection.
    fn segment(from: End, to: End) -> Packet {
        tcp(from, to).ack().data(64).hops(255)
    }

    fn passed(&self, hook: DeviceHook) -> Path {
        let packet = Self::segment(self.client(), (self.at.stranger, 443));
        Path {
            aim: PASSED,
            ..self.path("no service's", hook, &packet, Counter::PacketPassed)
        }
    }

    /// Two frontends, each of which a flow leads to the other.
    fn dnat(&self) -> ([End; 2], Given) {
        let [one, other] = [(self.at.cluster_ip, 80), (self.at.cluster_ip_also, 80)];
        let client = self.client();
        let given = vips(&[one.0, other.0])
            .connection(connection(TCP, [client, one], [client, other]).seen(seen::OPEN | seen::ANSWER))
            .connection(connection(TCP, [client, other], [client, one]).seen(seen::OPEN | seen::ANSWER));
        ([client, one], given)
    }

    fn forward_dnat(&self) -> Path {
        let ([client, one], given) = self.dnat();
        let packet = Self::segment(client, one);
        Path {
            entries: given.entries,
            aim: HIT,
            ..self.path(
                "known flow, DNAT, forward",
                PodIngress,
                &packet,
                Counter::FlowForwarded,
            )
        }
    }

    fn reply_dnat(&self, hook: DeviceHook) -> Path {
        let ([client, one], given) = self.dnat();
        let packet = Self::segment(one, client);
        Path {
            entries: given.entries,
            aim: HIT,
            ..self.path("known flow, DNAT, reply", hook, &packet, Counter::FlowReplied)
        }
    }

    /// The same, with two clients, so that the source is translated as well; all four can be routed to.
    fn snat(&self) -> ([End; 2], Given) {
        let [one, other] = [(self.at.remote, 80), (self.at.remote_also, 80)];
        let [client, stranger] = [self.client(), (self.at.stranger, 61_000)];
        let given = vips(&[one.0, other.0, client.0, stranger.0])
            .connection(connection(TCP, [client, one], [stranger, other]).seen(seen::OPEN | seen::ANSWER))
            .connection(connection(TCP, [stranger, other], [client, one]).seen(seen::OPEN | seen::ANSWER));
        ([client, one], given)
    }

    fn forward_snat(&self) -> Path {
        let ([client, one], given) = self.snat();
        let packet = Self::segment(client, one);
        Path {
            entries: given.entries,
            repeat: HOPS,
            ..self.path(
                "known flow, SNAT, routed, forward",
                NodeIngress,
                &packet,
                Counter::FlowForwarded,
            )
        }
    }

    fn reply_snat(&self) -> Path {
        let ([client, one], given) = self.snat();
        let packet = Self::segment(one, client);
        Path {
            entries: given.entries,
            repeat: HOPS,
            ..self.path(
                "known flow, SNAT, routed, reply",
                NodeIngress,
                &packet,
                Counter::FlowReplied,
            )
        }
    }

    fn forward_routed(&self) -> Path {
        let client = (self.at.node, 40_000);
        let [one, other] = [(self.at.remote, 80), (self.at.remote_also, 80)];
        let given = vips(&[one.0, other.0])
            .connection(connection(TCP, [client, one], [client, other]).seen(seen::OPEN | seen::ANSWER))
            .connection(connection(TCP, [client, other], [client, one]).seen(seen::OPEN | seen::ANSWER));
        let packet = Self::segment(client, one);
        Path {
            entries: given.entries,
            ..self.path(
                "known flow, DNAT, routed, forward",
                NodeEgress,
                &packet,
                Counter::FlowForwarded,
            )
        }
    }

    /// Frontends at ports of an address, each of which has the next one as its backend.
    fn chain(&self, address: IpAddr, local: bool) -> Given {
        (0..CHAIN).fold(vips(&[address]), |given, number| {
            let id = u32::from(number) + 1;
            let [port, next] = [number, number + 1].map(|number| FIRST_PORT + number);
            let frontend = Frontend {
                internal: id,
                external: id,
                ..Frontend::default()
            };
            let given = given.frontend((address, port), TCP, frontend).service(id, &[id]);
            if local {
                given.local_backend(id, (address, next), TCP)
            } else {
                given.remote_backend(id, (address, next), TCP)
            }
        })
    }

    fn miss_dnat(&self) -> Path {
        let address = self.at.cluster_ip;
        let packet = tcp(self.client(), (address, FIRST_PORT)).syn().hops(255);
        Path {
            entries: self.chain(address, true).entries,
            repeat: CHAIN.into(),
            opens: true,
            ..self.path("new flow, DNAT", PodIngress, &packet, Counter::FlowOpened)
        }
    }

    fn miss_snat(&self) -> Path {
        let address = self.at.remote;
        let packet = tcp(self.client(), (address, FIRST_PORT)).syn().hops(255);
        Path {
            entries: self.chain(address, false).entries,
            repeat: CHAIN.into(),
            opens: true,
            ..self.path(
                "new flow, SNAT, routed",
                NodeIngress,
                &packet,
                Counter::FlowOpened,
            )
        }
    }

    fn reset(&self) -> Path {
        let packet = tcp(self.client(), (self.at.load_balancer, 9)).syn();
        Path {
            entries: vips(&[self.at.load_balancer]).entries,
            repeat: 1,
            ..self.path(
                "unknown port: RST",
                NodeIngress,
                &packet,
                Counter::RejectedUnknownPort,
            )
        }
    }

    fn unreachable(&self) -> Path {
        let packet = udp(self.client(), (self.at.load_balancer, 9)).data(64);
        Path {
            entries: vips(&[self.at.load_balancer]).entries,
            repeat: 1,
            ..self.path(
                "unknown port: ICMP",
                NodeIngress,
                &packet,
                Counter::RejectedUnknownPort,
            )
        }
    }

    fn dropped(&self) -> Path {
        let packet = tcp(self.client(), (self.at.load_balancer, 9)).rst();
        Path {
            entries: vips(&[self.at.load_balancer]).entries,
            ..self.path(
                "unknown port: dropped",
                NodeIngress,
                &packet,
                Counter::DroppedNoFlow,
            )
        }
    }
}

/// Addresses of services.
fn vips(addresses: &[IpAddr]) -> Given {
    addresses.iter().fold(Given::default(), |given, address| {
        given.address((*address).into(), address_flags::VIP)
    })
}
