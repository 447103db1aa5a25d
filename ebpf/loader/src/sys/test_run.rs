//! `BPF_PROG_TEST_RUN` of packet programs.

use std::{io, os::fd::BorrowedFd};

use super::{address, bpf, raw};

const PROG_TEST_RUN: i32 = 10;

/// A packet for a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input<'a> {
    /// From the Ethernet header on: more than its 14 bytes, and as much as fits into a page.
    pub packet: &'a [u8],
    /// Index of the device, in the calling thread's network namespace, that the packet is at: where it came in, for
    /// ingress, or goes out.
    pub ifindex: u32,
    /// Whether it is the node's own, and goes out: it has come in by no device. Otherwise by `ifindex`.
    pub own: bool,
    /// Length of the segments that the packet was merged from or is to be cut into; 0: it is one.
    pub gso_size: u32,
    /// How often the program runs, each time on what the time before has left of the packet; at least once.
    pub repeat: u32,
}

/// What a program has made of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// What it returned (`TC_ACT_…`), the last time.
    pub verdict: i32,
    /// The packet as the program left it.
    pub packet: Vec<u8>,
    /// How long a run took, on average.
    pub nanoseconds: u32,
}

/// `struct __sk_buff`, up to `gso_size`. What is left out of it here must be zero: the kernel refuses (EINVAL) what
/// it would not obey.
#[repr(C)]
#[derive(Default)]
struct Context {
    /// `len`, `pkt_type`, `mark`, `queue_mapping`, `protocol`, `vlan_present`, `vlan_tci`, `vlan_proto`, `priority`.
    before_ingress_ifindex: [u32; 9],
    ingress_ifindex: u32,
    ifindex: u32,
    /// `tc_index`, `cb`, `hash`, `tc_classid`, `data`, `data_end`, `napi_id`, `family`, `remote_ip4`, `local_ip4`,
    /// `remote_ip6`, `local_ip6`, `remote_port`, `local_port`, `data_meta`.
    before_flow_keys: [u32; 25],
    flow_keys: u64,
    timestamp: u64,
    wire_length: u32,
    gso_segments: u32,
    /// `sk`.
    socket: u64,
    gso_size: u32,
    end: u32,
}

const _: () = assert!(
    std::mem::offset_of!(Context, ifindex) == 40
        && std::mem::offset_of!(Context, timestamp) == 152
        && std::mem::offset_of!(Context, gso_size) == 176
);

/// Runs a program on a packet.
pub(crate) fn run(program: BorrowedFd<'_>, input: &Input<'_>) -> io::Result<Run> {
    #[repr(C)]
    struct TestRun {
        program: u32,
        returned: u32,
        size_in: u32,
        size_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
        context_size_in: u32,
        context_size_out: u32,
        context_in: u64,
        context_out: u64,
    }
    /// More than any program makes of any packet: a page, which bounds what goes in, and what an answer may add.
    const MOST: usize = 2 * 65_536;
    let Input {
        packet,
        ifindex,
        own,
        gso_size,
        repeat,
    } = *input;
    let context = Context {
        ingress_ifindex: if own { 0 } else { ifindex },
        ifindex,
        gso_size,
        ..Context::default()
    };
    // What was held of a datagram may be sent in the packet's place.
    let longest = packet.len().max(lb_abi::HELD_BYTES);
    let mut out = vec![0_u8; (longest + 256).min(MOST)];
    let size = |length: usize| u32::try_from(length).map_err(io::Error::other);
    let mut attributes = TestRun {
        program: raw(program),
        returned: 0,
        size_in: size(packet.len())?,
        size_out: size(out.len())?,
        data_in: address(packet.as_ptr()),
        data_out: address(out.as_mut_ptr()),
        repeat: repeat.max(1),
        duration: 0,
        context_size_in: size(size_of::<Context>())?,
        context_size_out: 0,
        context_in: address(&raw const context),
        context_out: 0,
    };
    // SAFETY: packet and context outlive the call, and there is room for `size_out` bytes. The program is loaded, and
    // so can do nothing that the verifier has not allowed.
    unsafe { bpf(PROG_TEST_RUN, &mut attributes) }?;
    out.truncate(usize::try_from(attributes.size_out).unwrap_or(0));
    Ok(Run {
        verdict: attributes.returned.cast_signed(),
        packet: out,
        nanoseconds: attributes.duration,
    })
}
