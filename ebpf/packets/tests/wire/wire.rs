//! Programs at the devices of a [`TestNode`], and packet sockets at their other ends.

use std::{
    fs,
    time::{Duration, Instant},
};

use lb_loader::{DeviceHook, DeviceKind, Direction, Offload, PacketSocket, Wired, attach_filter};
use lb_packets::{
    model::{Read, read},
    stage::Stage,
    test_node::{CLOSED, NODE_LINK, PEER_LINK, POD_A, POD_B, TestNode, UPLINK},
};
use nix::net::if_::if_nametoindex;
use testing::patience::LIMIT;

/// Of the filters that come first.
const PRIORITY: u16 = 1;

/// The devices: their indexes, and the names of their other ends.
const DEVICES: [(u32, &str); 4] = [
    (UPLINK, "uplink_peer"),
    (POD_A, "pod_a_peer"),
    (POD_B, "pod_b_peer"),
    (CLOSED, "closed_peer"),
];

/// A device of the node's: what is sent by it, and what comes in at its other end.
struct End {
    device: u32,
    here: PacketSocket,
    there: PacketSocket,
}

/// The node.
pub(crate) struct Wire {
    pub(crate) stage: Stage,
    ends: Vec<End>,
    _node: TestNode,
}

impl Wire {
    /// With all programs where an agent attaches them.
    pub(crate) fn new() -> Self {
        let node = TestNode::enter().expect("a node");
        node.introduce_next_node().expect("its link address");
        let stage = Stage::new().expect("the programs");
        for (device, kind) in [
            (UPLINK, DeviceKind::Node),
            (POD_A, DeviceKind::Pod),
            (POD_B, DeviceKind::Pod),
            (CLOSED, DeviceKind::Node),
        ] {
            attach(&stage, device, kind, PRIORITY);
        }
        for (_, other) in DEVICES {
            // The other ends stand for others, and are in the same stack: it is not to send on what has come out there.
            for family in ["ipv4", "ipv6"] {
                let setting = format!("/proc/sys/net/{family}/conf/{other}/forwarding");
                fs::write(setting, "0").expect("a setting of the node");
            }
        }
        let ends = DEVICES.map(|(device, other)| End {
            device,
            here: PacketSocket::open(device).expect("a packet socket"),
            there: PacketSocket::open(if_nametoindex(other).expect("the other end"))
                .expect("a packet socket at the other end"),
        });
        Self {
            stage,
            ends: ends.into(),
            _node: node,
        }
    }

    /// Attaches the programs of the uplink once more, behind those that are there: as if another load had left its own.
    pub(crate) fn attach_again(&self) {
        attach(&self.stage, UPLINK, DeviceKind::Node, PRIORITY + 1);
    }

    fn end(&self, device: u32) -> &End {
        let end = self.ends.iter().find(|end| end.device == device);
        end.expect("a device of the node")
    }

    /// Has a frame come to a hook.
    pub(crate) fn send(&self, hook: DeviceHook, device: u32, wired: &Wired) {
        let end = self.end(device);
        let by = match hook {
            DeviceHook::NodeIngress | DeviceHook::PodIngress => &end.there,
            DeviceHook::NodeEgress | DeviceHook::PodEgress => &end.here,
        };
        by.send(wired).expect("sent");
    }

    /// Forgets what has come.
    pub(crate) fn drain(&self) {
        for end in &self.ends {
            while end.there.receive().expect("a packet socket").is_some() {}
            while end.here.receive().expect("a packet socket").is_some() {}
        }
    }

    /// Waits until this frame comes out of a device; what came else, if it does not. Checksums that were left to a device are
    /// completed, as one would.
    pub(crate) fn expect(&self, device: u32, frame: &[u8]) -> Result<Wired, String> {
        let mut others = Vec::new();
        let begun = Instant::now();
        // What is not there once all programs have run comes only on a busy machine.
        while begun.elapsed() < LIMIT.min(Duration::from_secs(20)) {
            let mut idle = true;
            for end in &self.ends {
                while let Some(wired) = end.there.receive().expect("a packet socket") {
                    idle = false;
                    if end.device == device && completed(&wired) == frame {
                        return Ok(wired);
                    }
                    others.push(format!("{}: {:02x?}", end.device, completed(&wired)));
                }
            }
            if idle {
                std::thread::yield_now();
            }
        }
        Err(others.join("\n"))
    }

    /// Everything else that has come out of any device once this frame has: what became of frames that were sent earlier.
    pub(crate) fn until(&self, device: u32, last: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            for end in &self.ends {
                while let Some(wired) = end.there.receive().expect("a packet socket") {
                    let frame = completed(&wired);
                    if end.device == device && frame == last {
                        return frames;
                    }
                    frames.push(frame);
                }
            }
            std::thread::yield_now();
        }
        panic!("the last frame did not come; others: {frames:02x?}");
    }
}

/// Attaches the programs of a kind.
fn attach(stage: &Stage, device: u32, kind: DeviceKind, priority: u16) {
    for hook in kind.hooks() {
        let direction = match hook {
            DeviceHook::NodeIngress | DeviceHook::PodIngress => Direction::Ingress,
            DeviceHook::NodeEgress | DeviceHook::PodEgress => Direction::Egress,
        };
        let program = stage.detached().program(*hook).expect("it is loaded");
        attach_filter(device, direction, priority, program).expect("attached");
    }
}

/// A frame on its way from the node.
pub(crate) fn leaving(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&PEER_LINK);
    frame[6..12].copy_from_slice(&NODE_LINK);
    frame
}

/// The sum of 16-bit words, folded.
fn folded(bytes: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    for word in bytes.chunks(2) {
        sum += u64::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}

/// A frame whose checksum is left to the device, where it is TCP's or UDP's and right.
pub(crate) fn partial(frame: &[u8]) -> Option<Wired> {
    let Read::Whole(layout) = read(frame, false) else {
        return None;
    };
    let offset: u16 = match layout.protocol {
        lb_abi::TCP => 16,
        lb_abi::UDP => 6,
        _ => return None,
    };
    if layout.fragment.is_some() || layout.end != frame.len() {
        return None;
    }
    let at = layout.payload + usize::from(offset);
    let field = at..at + 2;
    if frame[field.clone()] == [0, 0] || lb_packets::check::check(frame).is_err() {
        return None;
    }
    let length = u32::try_from(layout.end - layout.payload).expect("a frame's length");
    let addresses = [layout.source, layout.destination].map(|address| {
        let octets = address.octets();
        if layout.v4 {
            octets[12..].to_vec()
        } else {
            octets.to_vec()
        }
    });
    let [source, destination] = addresses;
    let pseudo = [
        source,
        destination,
        length.to_be_bytes().to_vec(),
        u32::from(layout.protocol).to_be_bytes().to_vec(),
    ];
    let mut frame = frame.to_vec();
    frame[field].copy_from_slice(&folded(&pseudo.concat()).to_be_bytes());
    let start = u16::try_from(layout.payload).expect("a header's length");
    Some(Wired {
        frame,
        offload: Some(Offload { start, offset }),
    })
}

/// A frame as a device sends it.
pub(crate) fn completed(wired: &Wired) -> Vec<u8> {
    let mut frame = wired.frame.clone();
    if let Some(Offload { start, offset }) = wired.offload {
        let start = usize::from(start);
        let sum = match !folded(&frame[start..]) {
            // Of UDP, and no harm to TCP (RFC 768).
            0 => 0xffff,
            sum => sum,
        };
        frame[start + usize::from(offset)..][..2].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}
