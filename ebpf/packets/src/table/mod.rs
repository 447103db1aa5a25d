//! A row of a table: a sentence, the maps, a packet at a hook, what becomes of it, and what is in the maps then.
//!
//! ```text
//! row("a SYN to a load balancer IP goes to its backend on this node, from the client's own address")
//!     .given(local(at, TCP))
//!     .packet(NodeIngress, tcp(client, frontend).syn())
//!     .passed_on(FlowOpened, tcp(client, backend).syn())
//!     .leaves([connection(TCP, [client, frontend], [client, backend]).seen(OPEN)])
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `given` | [`Given`]: what is in the maps |
//! | `connection` | [`Connection`]: both entries of a flow |

mod connection;
mod given;

use lb_abi::{BackendId, Counter, ServiceId};
use lb_loader::DeviceHook;

pub(crate) use self::given::ELSEWHERE;
pub use self::{
    connection::{Connection, allocated, connection},
    given::{Entry, Given, OpenSocket, SNAT_PORT},
};
use crate::{
    build::Packet,
    test_node::{POD_A, UPLINK},
};

/// The service port that rows are about, where they don't say another.
pub const SERVICE: ServiceId = 1;
/// The backend that rows are about, where they don't say another.
pub const BACKEND: BackendId = 1;

/// A row.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// What it shows, in a sentence.
    pub sentence: String,
    /// What is in the maps before.
    pub given: Given,
    /// Packets, one after the other.
    pub steps: Vec<Step>,
    /// What is in CONNTRACK afterwards; `None`: what was.
    pub connections: Option<Vec<Connection>>,
    /// What is in AFFINITY and FRAGMENTS afterwards, beside what was. An entry of the same key takes the place of one.
    pub noted: Vec<Entry>,
}

/// A packet, and what becomes of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// The program.
    pub hook: DeviceHook,
    /// The device: its index.
    pub device: u32,
    /// Whether it is the node's own.
    pub own: bool,
    /// Length of the segments of a merged packet; 0: it is one.
    pub gso_size: u32,
    /// The packet.
    pub packet: Packet,
    /// What the program returns.
    pub verdict: Verdict,
    /// What it counts on, once; `None`: on nothing.
    pub counter: Option<Counter>,
    /// The packet as the program leaves it.
    pub out: Packet,
    /// The service port and backend that traffic is counted for, if it is.
    pub traffic: (ServiceId, BackendId),
    /// Whether it also counts a port that was taken before its time.
    pub reused: bool,
    /// Must the packet out be whole, if it is another? Not if it came with a checksum that was wrong, and stays so.
    pub checked: bool,
}

/// What a program returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// TC_ACT_UNSPEC: on to the next program or filter, and then to the stack, or out.
    On,
    /// TC_ACT_SHOT.
    Shot,
    /// TC_ACT_REDIRECT: to another device, or back.
    Redirect,
}

impl Verdict {
    /// The number (`linux/pkt_cls.h`).
    pub const fn number(self) -> i32 {
        match self {
            Self::On => -1,
            Self::Shot => 2,
            Self::Redirect => 7,
        }
    }
}

/// Begins a row.
pub fn row(sentence: impl Into<String>) -> Row {
    Row {
        sentence: sentence.into(),
        given: Given::default(),
        steps: Vec::new(),
        connections: None,
        noted: Vec::new(),
    }
}

impl Row {
    /// What is in the maps.
    #[must_use]
    pub fn given(mut self, given: Given) -> Self {
        self.given = given;
        self
    }

    /// A packet: at the uplink, or at the device of the first pod. What becomes of it must come next.
    #[must_use]
    pub fn packet(self, hook: DeviceHook, packet: Packet) -> Self {
        let device = match hook {
            DeviceHook::NodeIngress | DeviceHook::NodeEgress => UPLINK,
            DeviceHook::PodIngress | DeviceHook::PodEgress => POD_A,
        };
        self.packet_at(hook, device, packet)
    }

    /// A packet at a certain device.
    #[must_use]
    pub fn packet_at(mut self, hook: DeviceHook, device: u32, packet: Packet) -> Self {
        self.steps.push(Step {
            hook,
            device,
            own: false,
            gso_size: 0,
            out: packet.clone(),
            packet,
            verdict: Verdict::On,
            counter: None,
            traffic: (SERVICE, BACKEND),
            reused: false,
            checked: true,
        });
        self
    }

    /// A process of the node has sent the packet, which has come in by no device.
    #[must_use]
    pub fn own(mut self) -> Self {
        self.last().own = true;
        self
    }

    /// The packet was merged of segments of this length, or is to be cut into them.
    #[must_use]
    pub fn segments(mut self, gso_size: u32) -> Self {
        self.last().gso_size = gso_size;
        self
    }

    /// Left alone.
    #[must_use]
    pub fn left_alone(mut self, counter: Counter) -> Self {
        self.last().counter = Some(counter);
        self
    }

    /// Left alone, and counted nowhere.
    #[must_use]
    pub const fn ignored(self) -> Self {
        self
    }

    /// Changed, and passed on to the stack or the device.
    #[must_use]
    pub fn passed_on(self, counter: Counter, out: Packet) -> Self {
        self.becomes(Verdict::On, counter, out)
    }

    /// Changed, and sent by the device that the route look-up gives.
    #[must_use]
    pub fn routed(self, counter: Counter, out: Packet) -> Self {
        self.becomes(Verdict::Redirect, counter, out)
    }

    /// Answered: what is sent back.
    #[must_use]
    pub fn answered(self, counter: Counter, answer: Packet) -> Self {
        self.becomes(Verdict::Redirect, counter, answer)
    }

    /// Dropped, as it was.
    #[must_use]
    pub fn dropped(mut self, counter: Counter) -> Self {
        let packet = self.last().packet.clone();
        self.becomes(Verdict::Shot, counter, packet)
    }

    /// The traffic is that of another service port and backend.
    #[must_use]
    pub fn counted_for(mut self, service: ServiceId, backend: BackendId) -> Self {
        self.last().traffic = (service, backend);
        self
    }

    /// With the port of a connection that has ended, before its time.
    #[must_use]
    pub fn reusing(mut self) -> Self {
        self.last().reused = true;
        self
    }

    /// The packet came with a wrong checksum, which is as wrong afterwards.
    #[must_use]
    pub fn still_wrong(mut self) -> Self {
        self.last().checked = false;
        self
    }

    fn becomes(mut self, verdict: Verdict, counter: Counter, out: Packet) -> Self {
        let step = self.last();
        step.verdict = verdict;
        step.counter = Some(counter);
        step.out = out;
        self
    }

    /// What is in CONNTRACK afterwards, whole.
    #[must_use]
    pub fn leaves<const N: usize>(mut self, connections: [Connection; N]) -> Self {
        self.connections = Some(connections.to_vec());
        self
    }

    /// What is in AFFINITY or FRAGMENTS afterwards, beside what was.
    #[must_use]
    pub fn notes(mut self, entry: Entry) -> Self {
        self.noted.push(entry);
        self
    }

    fn last(&mut self) -> &mut Step {
        self.steps
            .last_mut()
            .expect("a packet comes before what becomes of it")
    }
}
