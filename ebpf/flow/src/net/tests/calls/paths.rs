//! The common paths of packets.

use std::{format, string::String};

use lb_abi::{ICMP, ICMPV6, UDP};

use super::super::{addresses::datagram, *};

/// A path: the packet that is counted, and what the node has seen before.
pub(super) struct Path {
    pub(super) hook: Hook,
    pub(super) name: String,
    pub(super) node: Fake,
    pub(super) before: Vec<(Hook, Vec<u8>)>,
    pub(super) packet: Vec<u8>,
}

/// The addresses of one family.
pub(super) struct Addresses {
    node: Address,
    /// Of two machines outside.
    client: Address,
    router: Address,
    cluster_ip: Address,
    /// Of the Service's backend, and of a pod of this node that is none.
    backend: Address,
    pod: Address,
    unspecified: Address,
}

pub(super) const IPV4: Addresses = Addresses {
    node: NODE,
    client: CLIENT,
    router: Address::v4([192, 0, 2, 9]),
    cluster_ip: VIP,
    backend: POD,
    pod: Address::v4([10, 244, 0, 7]),
    unspecified: Address::UNSPECIFIED_V4,
};

pub(super) const IPV6: Addresses = Addresses {
    node: v6(1),
    client: v6(2),
    router: v6(3),
    cluster_ip: v6(4),
    backend: v6(5),
    pod: v6(6),
    unspecified: Address::UNSPECIFIED_V6,
};

/// Of 2001:db8::/32, which is for documentation (RFC 3849).
const fn v6(last: u8) -> Address {
    Address::v6([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
}

/// What has ports, as its packets are built.
struct Protocol {
    name: &'static str,
    number: u8,
    /// The first packet of a flow, and another one.
    first: Build,
    next: Build,
}

type Build = fn((Address, u16), (Address, u16)) -> Vec<u8>;

const ANY_TCP: Protocol = Protocol {
    name: "TCP",
    number: TCP,
    first: |from, to| segment(from, to, SYN),
    next: |from, to| segment(from, to, ACK),
};
const ANY_UDP: Protocol = Protocol {
    name: "UDP",
    number: UDP,
    first: datagram,
    next: datagram,
};

/// A flow, by its first packet.
struct TestFlow {
    name: String,
    node: Fake,
    first: (Hook, Vec<u8>),
}

impl TestFlow {
    /// The path of the first packet.
    fn first(&self, which: &str) -> Path {
        Path {
            hook: self.first.0,
            name: format!("{}{which}", self.name),
            node: self.node.clone(),
            before: Vec::new(),
            packet: self.first.1.clone(),
        }
    }

    /// The path of one that follows.
    fn then(&self, hook: Hook, which: &str, packet: Vec<u8>) -> Path {
        Path {
            hook,
            packet,
            before: vec![self.first.clone()],
            ..self.first(which)
        }
    }
}

const NODE_PORT: u16 = 30_080;
/// The first that is given out.
const SNAT_PORT: u16 = 40_000;

impl Addresses {
    /// All paths, by hook.
    pub(super) fn paths(&self) -> Vec<Path> {
        let mut paths = self.no_services();
        paths.extend(self.nodes_own());
        for protocol in [ANY_TCP, ANY_UDP] {
            paths.extend(self.remote_backend(&protocol));
            paths.extend(self.local_backend(&protocol));
            paths.extend(self.cluster_ip(&protocol));
        }
        paths.extend(self.options());
        paths.push(self.fragment());
        paths.push(self.icmp_error());
        // Those of one hook stay in this order.
        paths.sort_by_key(|path| path.hook as u32);
        paths
    }

    /// The node, with a Service at a cluster IP and a node port. `backend`: the flags of its backend.
    fn with_service(&self, protocol: u8, backend: u8) -> Fake {
        let mut node = in_front_of(self.cluster_ip, self.node, self.backend);
        let both = Frontend {
            internal: 1,
            external: 1,
            ..Frontend::default()
        };
        for (address, port) in [(self.cluster_ip, 80), (self.unspecified, NODE_PORT)] {
            let key = FrontendKey {
                address,
                port: Port::new(port),
                protocol,
                pad: 0,
            };
            node.maps.frontends.insert(key, both);
        }
        for there in node.maps.backends.values_mut() {
            (there.protocol, there.flags) = (protocol, backend);
        }
        node
    }

    /// A client outside that asks the node port.
    fn asks(&self, what: &str, protocol: &Protocol, backend: u8) -> TestFlow {
        let packet = (protocol.first)((self.client, 5000), (self.node, NODE_PORT));
        TestFlow {
            name: format!("node port, {what}, {}: ", protocol.name),
            node: self.with_service(protocol.number, backend),
            first: (Hook::NodeIngress, packet),
        }
    }

    /// The paths of what is for no frontend, and for none of its ports.
    fn unserved(
        &self,
        hook: Hook,
        [tcp, udp]: [&str; 2],
        from: Address,
        to: Address,
        sends: bool,
    ) -> [Path; 3] {
        let path = |name: String, packet| {
            let mut node = self.with_service(TCP, 0);
            node.sends = sends;
            let first = (hook, packet);
            TestFlow { name, node, first }.first("")
        };
        let (from, ssh, vxlan) = ((from, 5000), (to, 22), (to, 4789));
        [
            path(format!("{tcp}: first packet"), (ANY_TCP.first)(from, ssh)),
            path(format!("{tcp}: other packets"), (ANY_TCP.next)(from, ssh)),
            path(udp.into(), datagram(from, vxlan)),
        ]
    }

    /// Of pods.
    fn no_services(&self) -> Vec<Path> {
        let hooks = [
            (Hook::NodeIngress, self.client, self.pod),
            (Hook::NodeEgress, self.pod, self.client),
            (Hook::PodIngress, self.pod, self.client),
            (Hook::PodEgress, self.client, self.pod),
        ];
        let names = ["no Service, TCP", "no Service, UDP"];
        let of_hook = |(hook, from, to)| self.unserved(hook, names, from, to, false);
        hooks.into_iter().flat_map(of_hook).collect()
    }

    /// To and from the node's own processes, and its tunnel to another node.
    fn nodes_own(&self) -> Vec<Path> {
        let outside = ["the node's own, TCP (ssh)", "the node's own, UDP (VXLAN)"];
        let pods = ["the node's own, TCP", "the node's own, UDP"];
        let hooks = [
            (Hook::NodeIngress, outside, self.client, self.node),
            (Hook::NodeEgress, outside, self.node, self.client),
            (Hook::PodIngress, pods, self.pod, self.node),
            (Hook::PodEgress, pods, self.node, self.pod),
        ];
        let of_hook =
            |(hook, names, from, to): (Hook, _, _, _)| self.unserved(hook, names, from, to, !hook.inbound());
        hooks.into_iter().flat_map(of_hook).collect()
    }

    fn remote_backend(&self, protocol: &Protocol) -> [Path; 3] {
        let flow = self.asks("remote backend", protocol, 0);
        let (client, frontend) = ((self.client, 5000), (self.node, NODE_PORT));
        let (snat, backend) = ((self.node, SNAT_PORT), (self.backend, 8080));
        let next = protocol.next;
        [
            flow.first("first packet (SNAT)"),
            flow.then(Hook::NodeIngress, "known flow, forward", next(client, frontend)),
            flow.then(Hook::NodeIngress, "known flow, reply", next(backend, snat)),
        ]
    }

    fn local_backend(&self, protocol: &Protocol) -> [Path; 3] {
        let flow = self.asks("local backend", protocol, backend_flags::LOCAL);
        let (client, frontend, backend) = ((self.client, 5000), (self.node, NODE_PORT), (self.backend, 8080));
        let next = protocol.next;
        [
            flow.first("first packet (DNAT)"),
            flow.then(Hook::NodeIngress, "known flow, forward", next(client, frontend)),
            flow.then(Hook::NodeEgress, "known flow, reply", next(backend, client)),
        ]
    }

    /// Of a pod and of the node itself, where socket programs have not replaced the address.
    fn cluster_ip(&self, protocol: &Protocol) -> Vec<Path> {
        let (frontend, backend) = ((self.cluster_ip, 80), (self.backend, 8080));
        let clients = [
            ("a pod", self.pod, Hook::PodIngress, Hook::PodEgress),
            ("the node", self.node, Hook::NodeEgress, Hook::NodeIngress),
        ];
        let of_client = |(name, client, sent, back)| {
            let client = (client, 5000);
            let mut flow = TestFlow {
                name: format!("cluster IP, from {name}, {}: ", protocol.name),
                node: self.with_service(protocol.number, 0),
                first: (sent, (protocol.first)(client, frontend)),
            };
            flow.node.sends = matches!(sent, Hook::NodeEgress);
            [
                flow.first("first packet"),
                flow.then(sent, "known flow, forward", (protocol.next)(client, frontend)),
                flow.then(back, "known flow, reply", (protocol.next)(backend, client)),
            ]
        };
        clients.into_iter().flat_map(of_client).collect()
    }

    /// What Services ask for.
    fn options(&self) -> [Path; 2] {
        let asks = |what, change: fn(&mut Frontend)| {
            let mut flow = self.asks(what, &ANY_TCP, backend_flags::LOCAL);
            flow.node.maps.frontends.values_mut().for_each(change);
            flow
        };
        let mut affinity = asks("local backend, session affinity", |frontend| {
            frontend.affinity_seconds = 10_800;
        });
        affinity.node.maps.slots.insert(SlotKey::member(1, 1, 5), 5);
        let ranges = asks("local backend, source ranges", |frontend| {
            frontend.flags = frontend_flags::SOURCE_RANGES;
        });
        let again = segment((self.client, 5001), (self.node, NODE_PORT), SYN);
        [
            affinity.then(Hook::NodeIngress, "first packet of a known client", again),
            ranges.first("first packet"),
        ]
    }

    fn fragment(&self) -> Path {
        const FRAGMENT: u8 = 44;
        let mut flow = self.asks("local backend", &ANY_UDP, backend_flags::LOCAL);
        let whole = flow.first.1;
        let piece = |in_v4: [u8; 2], [high, low]: [u8; 2]| {
            if self.node.is_v4() {
                let mut packet = whole.clone();
                packet[14 + 6..14 + 8].copy_from_slice(&in_v4);
                return packet;
            }
            let payload = [&[UDP, 0, high, low, 0, 0, 0, 1], &whole[14 + 40..]].concat();
            frame(FRAGMENT, self.client, self.node, &payload)
        };
        // An offset of 0, and more fragments; an offset of 8 bytes.
        flow.first.1 = piece([0x20, 0], [0, 1]);
        flow.then(
            Hook::NodeIngress,
            "known flow, later fragment",
            piece([0, 1], [0, 8]),
        )
    }

    fn icmp_error(&self) -> Path {
        let quoted = &segment((self.node, SNAT_PORT), (self.backend, 8080), ACK)[14..];
        let (protocol, too_big) = if self.node.is_v4() {
            (ICMP, [3, 4])
        } else {
            (ICMPV6, [2, 0])
        };
        let payload = [&too_big, &[0, 0, 0, 0, 0x05, 0xdc][..], quoted].concat();
        self.asks("remote backend", &ANY_TCP, 0).then(
            Hook::NodeIngress,
            "known flow, ICMP error of a router",
            frame(protocol, self.router, self.node, &payload),
        )
    }
}
