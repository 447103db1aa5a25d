//! Random packets, as descriptions: at what they are aimed, of what shape, and how they are spoilt.

use proptest::{collection::vec, prelude::*, sample::select};

use super::{draw::rarely, pool};
use crate::{build::Extension, model::Device};

/// A packet, its hook, and what is done to its bytes.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) hook: Device,
    /// Replies that are not to the node leave, rather than come in.
    pub(super) natural: bool,
    /// The device does not forward.
    pub(super) closed: bool,
    /// Of what goes out: a process of the node has sent it.
    pub(super) own: bool,
    pub(super) target: Target,
    pub(super) kind: PacketKind,
    pub(super) shape: Shape,
    pub(super) twists: Vec<Twist>,
    pub(super) gso_size: u32,
}

/// Between which ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// Any client, and any address that services have.
    Place {
        client: usize,
        source: usize,
        place: usize,
        port: usize,
        protocol: Option<usize>,
    },
    /// From a source that can't be answered.
    Odd { source: usize, frontend: usize },
    /// A frontend that there is.
    Frontend {
        client: usize,
        source: usize,
        frontend: usize,
    },
    /// A flow that there is, or its reply.
    Flow { flow: usize, reply: bool },
    /// What an earlier packet has come as, or the reply to what it became.
    Earlier { step: usize, reply: bool },
}

/// What the packet carries.
#[derive(Clone, Debug)]
pub(super) enum PacketKind {
    /// With ports.
    Talk,
    /// An ICMP error about the packets in the other direction.
    Error {
        kind: usize,
        /// From a router on the way, not from the other end.
        router: bool,
        /// Bytes quoted of what is behind the IP header.
        quoted: usize,
        /// To another address than the quoted packet's source.
        astray: bool,
        /// What it quotes is spoilt.
        twists: Vec<Twist>,
    },
    /// ICMP of any type.
    Icmp(u8),
    /// A protocol without ports.
    Other(u8),
    /// Nothing that was ever a packet; of a family's ethertype.
    Noise(Vec<u8>),
}

/// Form of a packet with ports; most of it serves for others, too.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) flags: u8,
    pub(super) chunk: u8,
    pub(super) data: usize,
    pub(super) hops: u8,
    pub(super) dont_fragment: bool,
    pub(super) options: Vec<Vec<u8>>,
    pub(super) extensions: Vec<Extension>,
    pub(super) piece: Piece,
    pub(super) id: u32,
    pub(super) tags: usize,
    pub(super) group: bool,
    pub(super) checksum: Checksum,
    pub(super) padding: usize,
}

/// Which part of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    Whole,
    Atomic,
    First,
    Middle,
    Last,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Checksum {
    Right,
    Absent,
    /// UDP: right, and such that it would be 0.
    Zero,
}

/// A change of bytes that have been a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Twist {
    /// This byte becomes that.
    Set(usize, u8),
    /// This bit becomes the other.
    Flip(usize, u8),
    /// A field of the IP header that was chosen becomes that.
    Field(usize, u8),
    /// A field behind the IP headers.
    Transport(usize, u8),
    /// The end is missing.
    Cut(usize),
    /// There is more at the end.
    More(usize),
}

fn target() -> impl Strategy<Value = Target> {
    let clients = prop_oneof![5 => 0..4_usize, 1 => 0..pool::CLIENTS];
    let place = (
        clients.clone(),
        0..3_usize,
        0..pool::PLACES,
        0..3_usize,
        proptest::option::weighted(0.3, 0..3_usize),
    );
    prop_oneof![
        3 => place.prop_map(|(client, source, place, port, protocol)| Target::Place { client, source, place, port, protocol }),
        1 => (0..9_usize, 0..4_usize).prop_map(|(source, frontend)| Target::Odd { source, frontend }),
        8 => (clients, 0..3_usize, 0..4_usize).prop_map(|(client, source, frontend)| Target::Frontend { client, source, frontend }),
        9 => (0..4_usize, any::<bool>()).prop_map(|(flow, reply)| Target::Flow { flow, reply }),
        10 => (0..4_usize, any::<bool>()).prop_map(|(step, reply)| Target::Earlier { step, reply }),
    ]
}

fn kind() -> impl Strategy<Value = PacketKind> {
    let twists = prop_oneof![5 => Just(Vec::new()), 1 => vec(twist(), 1..3)];
    let quoted = prop_oneof![2 => Just(8_usize), 1 => 0..60_usize, 1 => Just(20)];
    let error = (0..6_usize, any::<bool>(), quoted, rarely(8), twists);
    let numbers = select(vec![0_u8, 8, 13, 17, 30, 128, 129, 133, 135, 137, 138, 255]);
    let others = select(vec![0_u8, 1, 2, 4, 41, 47, 50, 58, 59, 89, 115, 136, 255]);
    prop_oneof![
        40 => Just(PacketKind::Talk),
        8 => error.prop_map(|(kind, router, quoted, astray, twists)| PacketKind::Error { kind, router, quoted, astray, twists }),
        1 => numbers.prop_map(PacketKind::Icmp),
        1 => others.prop_map(PacketKind::Other),
        1 => vec(any::<u8>(), 1..120).prop_map(PacketKind::Noise),
    ]
}

fn option() -> impl Strategy<Value = Vec<u8>> {
    use crate::build::options::{
        LOOSE_ROUTE, NOTHING, RECORD_ROUTE, ROUTER_ALERT, STRICT_ROUTE, TOO_LONG, TOO_SHORT,
    };
    prop_oneof![
        4 => Just(NOTHING.to_vec()),
        4 => Just(ROUTER_ALERT.to_vec()),
        4 => Just(RECORD_ROUTE.to_vec()),
        1 => Just(LOOSE_ROUTE.to_vec()),
        1 => Just(STRICT_ROUTE.to_vec()),
        1 => Just(TOO_SHORT.to_vec()),
        1 => Just(TOO_LONG.to_vec()),
        1 => Just(vec![0]),
        1 => vec(any::<u8>(), 1..8),
    ]
}

fn extension() -> impl Strategy<Value = Extension> {
    prop_oneof![
        4 => (1..4_u8).prop_map(Extension::HopByHop),
        6 => (1..10_u8).prop_map(Extension::Destination),
        2 => (0..5_u8, 0..2_u8).prop_map(|(kind, left)| Extension::Routing(kind, left)),
        2 => Just(Extension::Routing(4, 0)),
        3 => Just(Extension::Authentication),
        1 => any::<u32>().prop_map(Extension::Jumbo),
        1 => select(vec![50_u8, 59, 135, 139, 253]).prop_map(Extension::Unknown),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let flags = prop_oneof![
        6 => Just(0x02_u8),
        4 => Just(0x10_u8),
        1 => Just(0x11_u8),
        1 => Just(0x14_u8),
        1 => Just(0x04_u8),
        1 => Just(0x12_u8),
        1 => any::<u8>(),
    ];
    let chunk =
        prop_oneof![5 => Just(1_u8), 2 => Just(0), 2 => select(vec![2_u8, 6, 7, 8, 14]), 1 => any::<u8>()];
    let data = prop_oneof![
        6 => 0..40_usize,
        1 => 1230..1270_usize,
        1 => 1425..1485_usize,
        1 => 1485..2500_usize,
    ];
    let hops = prop_oneof![8 => Just(64_u8), 2 => 0..4_u8, 1 => Just(255)];
    let options = prop_oneof![6 => Just(Vec::new()), 1 => vec(option(), 1..4)];
    let extensions =
        prop_oneof![6 => Just(Vec::new()), 1 => vec(extension(), 1..4), 1 => vec(extension(), 4..9)];
    let piece = prop_oneof![
        12 => Just(Piece::Whole),
        1 => Just(Piece::Atomic),
        2 => Just(Piece::First),
        1 => Just(Piece::Middle),
        1 => Just(Piece::Last),
    ];
    let tags = prop_oneof![10 => Just(0_usize), 1 => 1..4_usize];
    let checksum =
        prop_oneof![8 => Just(Checksum::Right), 1 => Just(Checksum::Absent), 1 => Just(Checksum::Zero)];
    let padding = prop_oneof![6 => Just(0_usize), 1 => 1..20_usize];
    (
        (flags, chunk, data, hops),
        (any::<bool>(), options, extensions, piece),
        (0..2_u32, tags, rarely(24), checksum, padding),
    )
        .prop_map(
            |(
                (flags, chunk, data, hops),
                (dont_fragment, options, extensions, piece),
                (id, tags, group, checksum, padding),
            )| Shape {
                flags,
                chunk,
                data,
                hops,
                dont_fragment,
                options,
                extensions,
                piece,
                id: pool::datagram(id),
                tags,
                group,
                checksum,
                padding,
            },
        )
}

fn twist() -> impl Strategy<Value = Twist> {
    prop_oneof![
        1 => (any::<usize>(), any::<u8>()).prop_map(|(at, to)| Twist::Set(at, to)),
        1 => (any::<usize>(), 0..8_u8).prop_map(|(at, bit)| Twist::Flip(at, bit)),
        3 => (0..44_usize, any::<u8>()).prop_map(|(at, to)| Twist::Field(at, to)),
        3 => (0..24_usize, any::<u8>()).prop_map(|(at, to)| Twist::Transport(at, to)),
        2 => any::<usize>().prop_map(Twist::Cut),
        1 => (1..30_usize).prop_map(Twist::More),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let hook = prop_oneof![
        4 => Just(Device::NodeIngress),
        2 => Just(Device::NodeEgress),
        2 => Just(Device::PodIngress),
        1 => Just(Device::PodEgress),
    ];
    let twists = prop_oneof![5 => Just(Vec::new()), 1 => vec(twist(), 1..3)];
    let hook = (hook, any::<bool>(), any::<bool>());
    let gso = prop_oneof![12 => Just(0_u32), 1 => 500..1400_u32];
    (hook, rarely(24), target(), kind(), shape(), twists, gso).prop_map(
        |((hook, natural, own), closed, target, kind, shape, twists, gso_size)| Step {
            hook,
            natural,
            own,
            closed,
            target,
            kind,
            shape,
            twists,
            gso_size,
        },
    )
}

/// A short sequence.
pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..6)
}
