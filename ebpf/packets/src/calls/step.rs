//! Steps of a case, and how they are drawn.

use lb_abi::{Frontend, TCP, UDP, address_flags, frontend_flags};
use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    initial_services::{BACKENDS, SERVICES},
    named_address::{DEAD, NamedAddress, SERVED},
};

/// Sockets that are open at once.
const SLOTS: usize = 4;

/// A protocol and a family: services and their backends are of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the alternatives are UDP and IPv6")]
pub struct Group {
    pub tcp: bool,
    pub v4: bool,
}

impl Group {
    /// As maps have it.
    pub(super) const fn protocol(self) -> u8 {
        if self.tcp { TCP } else { UDP }
    }
}

/// How a socket names addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketKind {
    /// An IPv4 socket.
    V4,
    /// An IPv6 socket that names IPv6 addresses.
    V6,
    /// An IPv6 socket that names IPv4 addresses.
    Mapped,
    /// An IPv6 socket that names both, and so is never connected.
    Dual,
}

impl SocketKind {
    /// Whether it names an IPv4 address; where it may be either, `v4` decides.
    pub(super) const fn names_v4(self, v4: bool) -> bool {
        match self {
            Self::V4 | Self::Mapped => true,
            Self::V6 => false,
            Self::Dual => v4,
        }
    }
}

/// A destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct To {
    /// The address,
    pub place: NamedAddress,
    /// and its port.
    pub port: u16,
    /// Its family, where the socket names both.
    pub v4: bool,
    /// On an IPv6 socket of UDP, an IPv4 address as `sockaddr_in` and not IPv4-mapped.
    pub plain: bool,
}

/// A socket that is bound, and closed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "of the socket, and what it is bound to")]
pub struct Bound {
    pub kind: SocketKind,
    /// `IPV6_V6ONLY`; of a socket that names IPv6 addresses.
    pub only_v6: bool,
    pub tcp: bool,
    /// In the namespace that is not the node's.
    pub pod: bool,
    pub place: NamedAddress,
    pub port: u16,
}

/// What a client does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// `socket`, and `bind` to a port of the kernel's choice; another one in its place is closed.
    #[expect(missing_docs, reason = "as of `Bound`")]
    Open { kind: SocketKind, tcp: bool, pod: bool },
    /// `close`.
    Close,
    /// `connect`.
    Connect(To),
    /// `sendto`; the server that is reached answers; `recvfrom`, with or without the source.
    #[expect(missing_docs, reason = "documented above")]
    Send { to: To, asks: bool },
    /// `send` on a connected socket, and the rest as of `Send`.
    #[expect(missing_docs, reason = "documented above")]
    Again { asks: bool },
    /// `getpeername`.
    Peer,
    /// A server sends unasked to an unconnected socket; `recvfrom`.
    #[expect(missing_docs, reason = "documented above")]
    Unsolicited { from: NamedAddress, port: u16, v4: bool },
    /// `bind` of a socket of its own.
    Bind(Bound),
}

/// What an agent, a clock or another agent's version makes of the maps.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "named as the maps' fields are")]
pub enum Change {
    /// BACKENDS: gone, or at a port.
    Backend {
        group: Group,
        index: u32,
        port: Option<u16>,
    },
    /// The next generation, of these backends; of the other family if `foreign`.
    Switch {
        group: Group,
        service: u32,
        members: Vec<u32>,
        foreign: bool,
    },
    /// SERVICES: nothing.
    Unserved { group: Group, service: u32 },
    /// SLOTS: one of the generation is gone.
    Torn { group: Group, service: u32, slot: u32 },
    /// FRONTENDS: gone, or a value, whose ids are numbers of the group's service ports; 0 is none.
    Frontend {
        group: Group,
        place: NamedAddress,
        port: u16,
        value: Option<Frontend>,
    },
    /// ADDRESSES: gone, or flags.
    Address {
        place: NamedAddress,
        v4: bool,
        flags: Option<u32>,
    },
    /// KEPT: gone, or the generation that is current.
    Kept { group: Group, service: u32, kept: bool },
    /// CONFIG: the calls are the agent's own.
    Own(bool),
    /// CONFIG: which namespace is the node's: of the clients of two.
    Node { pod: bool },
    /// CONFIG: cluster IPs are from the range of [`NamedAddress::ClusterIp`]; SOURCES: [`NamedAddress::ClusterIpAlso`] is a pod.
    Ranges { v4: bool, range: bool, pod: bool },
    /// AFFINITY: so much older.
    Age(u32),
    /// CHOSEN: what leads to a backend goes, as by the agent.
    Forget { group: Group, index: u32 },
    /// META: of this version.
    Live(bool),
}

/// One step of a case.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Of the maps.
    Change(Change),
    /// Of the socket with this number.
    Call(usize, Call),
}

fn rarely(of: u32) -> impl Strategy<Value = bool> {
    (0..of).prop_map(move |draw| draw == of / 2)
}

/// Mostly the one that the case is about, so that changes and calls meet.
fn group(about: Group) -> impl Strategy<Value = Group> {
    prop_oneof![5 => Just(about), 1 => select(Group::ALL.to_vec())]
}

fn tcp(about: Group) -> impl Strategy<Value = bool> {
    prop_oneof![5 => Just(about.tcp), 1 => any::<bool>()]
}

fn kind(about: Group) -> impl Strategy<Value = SocketKind> {
    let usual = if about.v4 {
        vec![SocketKind::V4, SocketKind::Mapped, SocketKind::Dual]
    } else {
        vec![SocketKind::V6, SocketKind::V6, SocketKind::Dual]
    };
    prop_oneof![5 => select(usual), 1 => select(vec![SocketKind::V4, SocketKind::V6, SocketKind::Mapped])]
}

fn place() -> impl Strategy<Value = NamedAddress> {
    prop_oneof![
        3 => Just(NamedAddress::ClusterIp),
        1 => select(NamedAddress::ALL.to_vec()),
    ]
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![6 => Just(80_u16), 3 => Just(30080), 1 => Just(30081), 1 => Just(81), 1 => Just(SERVED), 1 => Just(DEAD)]
}

fn to(about: Group) -> impl Strategy<Value = To> {
    let node_port = (
        select(vec![
            NamedAddress::Node,
            NamedAddress::Loopback,
            NamedAddress::LoopbackAlso,
            NamedAddress::Unspecified,
        ]),
        select(vec![30080_u16, 30081]),
    );
    let at = prop_oneof![3 => (place(), port()), 1 => node_port];
    (at, group(about), rarely(3)).prop_map(|((place, port), Group { v4, .. }, plain)| To {
        place,
        port,
        v4,
        plain,
    })
}

fn bound(about: Group) -> impl Strategy<Value = Bound> {
    let place = prop_oneof![2 => Just(NamedAddress::Unspecified), 3 => select(NamedAddress::ALL.to_vec())];
    let at = (place, select(vec![30080_u16, 30081, 30081, 80]));
    (kind(about), any::<bool>(), tcp(about), rarely(5), at).prop_map(
        |(kind, only_v6, tcp, pod, (place, port))| Bound {
            kind: if kind == SocketKind::Dual {
                SocketKind::V6
            } else {
                kind
            },
            only_v6,
            tcp,
            pod,
            place,
            port,
        },
    )
}

fn open(about: Group) -> impl Strategy<Value = Call> {
    let pod = rarely(4);
    (kind(about), tcp(about), pod).prop_map(|(kind, tcp, pod)| Call::Open { kind, tcp, pod })
}

fn call(about: Group) -> impl Strategy<Value = Call> {
    let unsolicited = (
        select(NamedAddress::SERVERS.to_vec()),
        select(vec![SERVED, SERVED, DEAD]),
        group(about),
    );
    prop_oneof![
        3 => open(about),
        1 => Just(Call::Close),
        5 => to(about).prop_map(Call::Connect),
        8 => (to(about), any::<bool>()).prop_map(|(to, asks)| Call::Send { to, asks }),
        2 => any::<bool>().prop_map(|asks| Call::Again { asks }),
        2 => Just(Call::Peer),
        3 => unsolicited.prop_map(|(from, port, Group { v4, .. })| Call::Unsolicited { from, port, v4 }),
        2 => bound(about).prop_map(Call::Bind),
    ]
}

fn frontend() -> impl Strategy<Value = Frontend> {
    let flags = prop_oneof![4 => Just(0), 1 => 0..=frontend_flags::ALL];
    let affinity = prop_oneof![1 => Just(0_u32), 1 => Just(10), 1 => Just(10_800)];
    let internal = prop_oneof![1 => Just(0), 4 => 1..=SERVICES];
    (internal, 0..=SERVICES, flags, affinity).prop_map(|(internal, external, flags, affinity_seconds)| {
        Frontend {
            internal,
            external,
            flags,
            affinity_seconds,
        }
    })
}

fn change(about: Group) -> impl Strategy<Value = Change> {
    use address_flags::{LOAD_BALANCER, NODE, VIP};
    let ports = prop_oneof![2 => Just(None), 2 => Just(Some(SERVED)), 1 => Just(Some(DEAD))];
    let at = (group(about), place(), port());
    let members = prop_oneof![1 => Just(Vec::new()), 2 => vec(0..BACKENDS, 1..4)];
    let flags = proptest::option::weighted(
        0.8,
        select(vec![
            0,
            VIP,
            NODE,
            LOAD_BALANCER,
            VIP | NODE,
            LOAD_BALANCER | NODE,
        ]),
    );
    let ages = select(vec![1_u32, 5, 9, 10, 11, 12, 20, 11_000]);
    prop_oneof![
        4 => (group(about), 0..BACKENDS, ports).prop_map(|(group, index, port)| Change::Backend { group, index, port }),
        4 => (group(about), 0..SERVICES, members, rarely(12))
            .prop_map(|(group, service, members, foreign)| Change::Switch { group, service, members, foreign }),
        1 => (group(about), 0..SERVICES).prop_map(|(group, service)| Change::Unserved { group, service }),
        1 => (group(about), 0..SERVICES, 0..BACKENDS).prop_map(|(group, service, slot)| Change::Torn { group, service, slot }),
        6 => (at, proptest::option::weighted(0.85, frontend()))
            .prop_map(|((group, place, port), value)| Change::Frontend { group, place, port, value }),
        2 => (select(NamedAddress::ALL.to_vec()), any::<bool>(), flags).prop_map(|(place, v4, flags)| Change::Address { place, v4, flags }),
        2 => (group(about), 0..SERVICES, rarely(3)).prop_map(|(group, service, gone)| Change::Kept { group, service, kept: !gone }),
        4 => any::<bool>().prop_map(Change::Own),
        1 => any::<bool>().prop_map(|pod| Change::Node { pod }),
        1 => (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(v4, range, pod)| Change::Ranges { v4, range, pod }),
        2 => ages.prop_map(Change::Age),
        1 => (group(about), 0..BACKENDS).prop_map(|(group, index)| Change::Forget { group, index }),
        1 => rarely(2).prop_map(Change::Live),
    ]
}

fn steps_about(about: Group) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => change(about).prop_map(Step::Change),
        3 => (0..SLOTS, call(about)).prop_map(|(slot, call)| Step::Call(slot, call)),
    ];
    // A call has a socket more often than not; some cases are the agent's own.
    let opened = vec(open(about), 2..=SLOTS);
    (rarely(4), opened, vec(step, 4..24)).prop_map(|(own, opened, steps)| {
        let own = own.then_some(Step::Change(Change::Own(true)));
        let opened = opened.into_iter().enumerate();
        let opened = opened.map(|(slot, open)| Step::Call(slot, open));
        own.into_iter().chain(opened).chain(steps).collect()
    })
}

/// A case: changes, and calls between them.
pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let about = prop_oneof![2 => Just(false), 1 => Just(true)];
    (about, any::<bool>()).prop_flat_map(|(tcp, v4)| steps_about(Group { tcp, v4 }))
}
