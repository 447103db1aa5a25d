//! The only access to the packet.
//!
//! Bytes are copied by helpers, which work wherever the kernel keeps them (a packet need not be in one piece), and
//! which fail where there are none. Offsets are from the link-layer header on.

use core::mem::MaybeUninit;

use aya_ebpf::{
    bindings::__sk_buff,
    helpers::generated::{
        bpf_clone_redirect, bpf_l4_csum_replace, bpf_redirect, bpf_skb_change_tail, bpf_skb_load_bytes,
        bpf_skb_store_bytes, bpf_skb_vlan_pop,
    },
};
use lb_abi::HELD_BYTES;
use lb_flow::net::{
    Options, Packet,
    reject::{ANSWER_WORDS, QUOTE},
};

use super::global;

/// `BPF_F_RECOMPUTE_CSUM`: what a device has summed up of the packet follows.
const RECOMPUTE: u64 = 1;
/// `BPF_F_INGRESS`: as if it came in by the device.
pub const INGRESS: u64 = 1;
/// Tags that are taken off, at most: two in the packet, and one beside it.
const TAGS: u32 = 3;
/// [`Skb::mark_translated`]: 16 bits.
const TRANSLATED: u32 = 0x504c;

/// A packet.
#[derive(Clone, Copy)]
pub struct Skb(*mut __sk_buff);

/// The kernel has refused to change a packet: it has no memory to copy what others see, too.
pub struct Refused;

/// What becomes of what a device has summed up of a packet (CHECKSUM_COMPLETE).
#[derive(Clone, Copy)]
pub enum Summed {
    /// It stays: a checksum in the packet changes against what is written.
    Same,
    /// It follows what is written.
    Follows,
}

/// A checksum in a packet.
#[derive(Clone, Copy)]
pub enum Checksum {
    /// Of TCP and ICMP.
    Plain,
    /// Of UDP over IPv4: 0 is none, and stays; and it never becomes 0.
    Optional,
    /// Of UDP over IPv6: it never becomes 0.
    Never0,
}

impl Skb {
    /// Of a program's argument.
    #[inline(always)]
    pub fn new(context: *mut __sk_buff) -> Self {
        Self(context)
    }

    /// The program's argument.
    #[inline(always)]
    pub fn argument(self) -> *mut __sk_buff {
        self.0
    }

    /// What helpers take that are not only for packets.
    #[inline(always)]
    pub fn context(self) -> *mut core::ffi::c_void {
        self.0.cast()
    }

    /// Index of the device that it is at.
    #[inline(always)]
    pub fn device(self) -> u32 {
        // SAFETY: the kernel's pointer, and a field that may be read, as a whole.
        unsafe { (&raw const (*self.0).ifindex).read_volatile() }
    }

    /// Index of the device that it came in by; 0: it is the node's own.
    #[inline(always)]
    pub fn ingress_ifindex(self) -> u32 {
        // SAFETY: as above.
        unsafe { (&raw const (*self.0).ingress_ifindex).read_volatile() }
    }

    /// Marks it as translated: the hook of the device that it leaves by sees it, too, and so does the next program at the same
    /// device, should another load have left one there. (The kernel uses `tc_index` nowhere since dsmark and cls_tcindex are gone,
    /// 6.3; before, only where those are configured.)
    #[inline(always)]
    pub fn mark_translated(self) {
        // SAFETY: the kernel's pointer, and a field that may be written, as a whole.
        unsafe { (&raw mut (*self.0).tc_index).write_volatile(TRANSLATED) };
    }

    /// Takes the mark off: where the other end of a link is in the same kernel, it comes along.
    #[inline(always)]
    pub fn unmark(self) {
        // SAFETY: as above.
        unsafe { (&raw mut (*self.0).tc_index).write_volatile(0) };
    }

    /// Whether it has the mark of [`Self::mark_translated`].
    #[inline(always)]
    pub fn is_translated(self) -> bool {
        // SAFETY: as above, to be read.
        unsafe { (&raw const (*self.0).tc_index).read_volatile() == TRANSLATED }
    }

    /// Bytes of payload of what it was merged of, or is to be cut into; 0: it is one packet.
    #[inline(always)]
    pub fn segment_size(self) -> u32 {
        // SAFETY: as above.
        unsafe { (&raw const (*self.0).gso_size).read_volatile() }
    }

    /// Writes words.
    #[inline(always)]
    pub fn store<const WORDS: usize>(
        self,
        offset: u32,
        words: &[u32; WORDS],
        summed: Summed,
    ) -> Result<(), Refused> {
        self.write(
            offset,
            words.as_ptr().cast(),
            size_of::<[u32; WORDS]>() as u32,
            summed,
        )
    }

    /// Writes two bytes.
    #[inline(always)]
    pub fn store_half(self, offset: u32, half: [u8; 2], summed: Summed) -> Result<(), Refused> {
        let half = u16::from_ne_bytes(half);
        self.write(offset, (&raw const half).cast(), size_of::<u16>() as u32, summed)
    }

    /// Writes a byte.
    #[inline(always)]
    pub fn store_byte(self, offset: u32, byte: u8, summed: Summed) -> Result<(), Refused> {
        self.write(offset, (&raw const byte).cast(), 1, summed)
    }

    /// Writes the first `length` bytes of an answer.
    #[inline(always)]
    pub fn store_answer(self, offset: u32, answer: &[u32; ANSWER_WORDS], length: u32) -> Result<(), Refused> {
        const { assert!(ANSWER_WORDS * 4 == 256) };
        // 1 to 256, as a verifier sees it.
        let length = (length.wrapping_sub(1) & 0xff) + 1;
        self.write(offset, answer.as_ptr().cast(), length, Summed::Follows)
    }

    #[inline(always)]
    fn write(
        self,
        offset: u32,
        from: *const core::ffi::c_void,
        length: u32,
        summed: Summed,
    ) -> Result<(), Refused> {
        let flags = match summed {
            Summed::Same => 0,
            Summed::Follows => RECOMPUTE,
        };
        // SAFETY: the callers' pointers are to `length` bytes.
        done(unsafe { bpf_skb_store_bytes(self.0, offset, from, length, flags) })
    }

    /// Changes a checksum by a difference; `pseudo`: of the pseudo-header. A checksum that the device is to complete
    /// (CHECKSUM_PARTIAL) covers no more than that yet, and is left alone otherwise.
    #[inline(always)]
    pub fn l4_checksum(
        self,
        offset: u32,
        difference: u32,
        kind: Checksum,
        pseudo: bool,
    ) -> Result<(), Refused> {
        const PSEUDO_HDR: u64 = 1 << 4;
        const MARK_MANGLED_0: u64 = 1 << 5;
        const MARK_ENFORCE: u64 = 1 << 6;
        let flags = match kind {
            Checksum::Plain => 0,
            Checksum::Optional => MARK_MANGLED_0,
            Checksum::Never0 => MARK_MANGLED_0 | MARK_ENFORCE,
        };
        let flags = if pseudo { flags | PSEUDO_HDR } else { flags };
        // SAFETY: a size of 0, which is not in the flags: the fourth argument is a difference.
        done(unsafe { bpf_l4_csum_replace(self.0, offset, 0, u64::from(difference), flags) })
    }

    /// One or two bytes.
    ///
    /// In eight bytes of the stack, though: a verifier forgets the other values in the same eight bytes when a helper
    /// writes to some, and one of them may be the counter of a loop, which has no end then.
    #[inline(always)]
    fn first(self, offset: u32, count: u32) -> Option<[u8; 2]> {
        let mut bytes = 0_u64;
        // SAFETY: a pointer to eight bytes, and no more are asked for.
        if unsafe { bpf_skb_load_bytes(self.0.cast(), offset, (&raw mut bytes).cast(), count) } != 0 {
            return None;
        }
        let [first, second, ..] = bytes.to_ne_bytes();
        Some([first, second])
    }

    /// Makes the packet as long as this.
    #[inline(always)]
    pub fn set_length(self, length: u32) -> Result<(), Refused> {
        // SAFETY: no conditions.
        done(unsafe { bpf_skb_change_tail(self.0, length, 0) })
    }

    /// Takes all tags off.
    #[inline(always)]
    pub fn remove_tags(self) -> Result<(), Refused> {
        for _ in 0..TAGS {
            // SAFETY: the kernel's pointer, and a field that may be read, as a whole.
            let beside = unsafe { (&raw const (*self.0).vlan_present).read_volatile() };
            if beside == 0 && !matches!(self.protocol(), [0x81, 0x00] | [0x88, 0xa8]) {
                return Ok(());
            }
            // SAFETY: no conditions.
            done(unsafe { bpf_skb_vlan_pop(self.0) })?;
        }
        Ok(())
    }

    /// Swaps the link-layer addresses.
    #[inline(always)]
    pub fn swap_macs(self) -> Result<(), Refused> {
        let [first, second, third] = self.words::<3>(0).ok_or(Refused)?;
        let ([a, b, c, d], [e, f, g, h], [i, j, k, l]) =
            (first.to_ne_bytes(), second.to_ne_bytes(), third.to_ne_bytes());
        let swapped = [
            u32::from_ne_bytes([g, h, i, j]),
            u32::from_ne_bytes([k, l, a, b]),
            u32::from_ne_bytes([c, d, e, f]),
        ];
        self.store(0, &swapped, Summed::Same)
    }

    /// Copies the whole packet, of `length` bytes; `false`: there are not as many.
    #[inline(always)]
    pub fn load(self, length: u32, into: &mut [u8; HELD_BYTES]) -> bool {
        const { assert!(HELD_BYTES == 2048) };
        // 1 to 2048, as a verifier sees it.
        let length = (length.wrapping_sub(1) & 0x7ff) + 1;
        // SAFETY: a pointer to 2048 bytes.
        unsafe { bpf_skb_load_bytes(self.0.cast(), 0, into.as_mut_ptr().cast(), length) == 0 }
    }

    /// Writes the first `length` bytes of a frame, which is all of the packet.
    #[inline(always)]
    pub fn store_frame(self, frame: &[u8; HELD_BYTES], length: u32) -> Result<(), Refused> {
        // As above.
        let length = (length.wrapping_sub(1) & 0x7ff) + 1;
        self.write(0, frame.as_ptr().cast(), length, Summed::Follows)
    }

    /// Has a copy of the packet come in by the device that it is at, after what has come in meanwhile.
    #[inline(always)]
    pub fn come_in_again(self) {
        // SAFETY: no conditions. Should the queue be full, it is a packet that the network has lost.
        unsafe { bpf_clone_redirect(self.0, self.device(), INGRESS) };
    }

    /// Whether the packet is for another host, and seen here as the device takes everything in (`PACKET_OTHERHOST`).
    #[inline(always)]
    pub fn is_others(self) -> bool {
        const OTHERHOST: u32 = 3;
        // SAFETY: the kernel's pointer, and a field that may be read, as a whole.
        unsafe { (&raw const (*self.0).pkt_type).read_volatile() == OTHERHOST }
    }

    /// Has the packet sent by a device, or come in by it.
    #[inline(always)]
    pub fn redirect(self, device: u32, flags: u64) {
        // SAFETY: no conditions. It does no more than note where to, and what it returns is known.
        unsafe { bpf_redirect(device, flags) };
    }
}

#[inline(always)]
fn done(result: i64) -> Result<(), Refused> {
    if result == 0 { Ok(()) } else { Err(Refused) }
}

impl Packet for Skb {
    #[inline(always)]
    fn protocol(self) -> [u8; 2] {
        // SAFETY: the kernel's pointer, and a field that may be read, as a whole.
        let protocol = unsafe { (&raw const (*self.0).protocol).read_volatile() };
        let [first, second, ..] = protocol.to_ne_bytes();
        [first, second]
    }

    #[inline(always)]
    fn length(self) -> u32 {
        // SAFETY: as above.
        unsafe { (&raw const (*self.0).len).read_volatile() }
    }

    #[inline(always)]
    fn is_gso(self) -> bool {
        self.segment_size() != 0
    }

    #[inline(always)]
    fn words<const WORDS: usize>(self, offset: u32) -> Option<[u32; WORDS]> {
        let mut words = MaybeUninit::<[u32; WORDS]>::uninit();
        let size = size_of::<[u32; WORDS]>() as u32;
        // SAFETY: a pointer to that many bytes.
        if unsafe { bpf_skb_load_bytes(self.0.cast(), offset, words.as_mut_ptr().cast(), size) } != 0 {
            return None;
        }
        // SAFETY: the helper has written all of it.
        Some(unsafe { words.assume_init() })
    }

    #[inline(always)]
    fn half(self, offset: u32) -> Option<[u8; 2]> {
        self.first(offset, 2).map(|[first, second]| [first, second])
    }

    #[inline(always)]
    fn byte(self, offset: u32) -> Option<u8> {
        self.first(offset, 1).map(|[first, _]| first)
    }

    #[inline(always)]
    fn copy<const AT: usize>(self, offset: u32, length: u32, into: &mut [u32; ANSWER_WORDS]) -> bool {
        const { assert!(QUOTE == 128 && AT * 4 + 128 <= ANSWER_WORDS * 4) };
        // 1 to 128, as a verifier sees it.
        let length = (length.wrapping_sub(1) & 0x7f) + 1;
        let Some(to) = into.get_mut(AT) else { return false };
        // SAFETY: from there on there are 128 bytes, as asserted.
        unsafe { bpf_skb_load_bytes(self.0.cast(), offset, (&raw mut *to).cast(), length) == 0 }
    }

    #[inline(always)]
    fn options(self, at: u32, end: u32) -> Options {
        global::options(self, at, end)
    }

    #[inline(always)]
    fn has_jumbo(self, at: u32, end: u32) -> bool {
        global::has_jumbo(self, at, end)
    }
}
