//! Packets as they were when a packet socket saw them: the kernel copies each to a ring in shared memory (PACKET_RX_RING,
//! TPACKET_V2; kernel documentation, networking/packet_mmap).
//!
//! A packet socket without a ring keeps the packet itself until it is read, so that what is done to it on its way may change
//! what is read: a node that puts fragments together, as connection tracking does before it translates, and sends them on
//! as fragments, writes the new headers over those that a pod has sent.
#![expect(unsafe_code, reason = "memory that is shared with the kernel")]

use std::{
    ffi::c_int,
    io, mem,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr, slice,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use memmap2::{MmapOptions, MmapRaw};
use nix::{
    libc::{self, sockaddr_ll, tpacket_req, tpacket2_hdr},
    sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket},
};

use crate::socket_options::set;

/// Bytes of a slot. Behind its own header of about a hundred bytes, it has a packet's headers and those of one that an
/// ICMP error is about.
const SLOT: usize = 512;
/// Everything that arrives while this process does not run; 4 MiB.
const SLOTS: usize = 8192;
/// Bytes that the kernel allocates in one piece: a multiple of its pages, which on arm64 may have so many.
const BLOCK: usize = 1 << 16;
/// Slots behind an empty one that are looked at: more processors than this hardly copy to theirs at once.
const AHEAD: usize = 64;
/// How often the processor is given to others while one of them copies to a slot, which takes microseconds.
const GIVEN: usize = 10_000;
/// `TPACKET_V2` of `enum tpacket_versions`.
const TPACKET_V2: c_int = 1;

/// Where a slot has the link-layer address: behind its header, aligned.
const LINK: usize = mem::size_of::<tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);

const _: () = assert!((SLOTS * SLOT).is_multiple_of(BLOCK) && BLOCK.is_multiple_of(SLOT));

/// A packet socket of all devices of this network namespace, with a ring. It iterates over the packets up to now; those
/// that find no empty slot are lost.
pub(crate) struct Ring {
    socket: OwnedFd,
    memory: MmapRaw,
    /// The slot to read next.
    next: usize,
}

/// A packet without its link-layer header.
pub(crate) struct Seen {
    /// Index of the device.
    pub(crate) device: c_int,
    /// Whether this network namespace sends it.
    pub(crate) is_sent: bool,
    /// Its beginning.
    pub(crate) bytes: Vec<u8>,
}

impl Ring {
    /// Begins to keep packets.
    ///
    /// # Errors
    /// Of the system calls: CAP_NET_RAW is needed.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        // Without link-layer headers. Only a socket of all protocols shows sent packets.
        let socket = socket(
            AddressFamily::Packet,
            SockType::Datagram,
            flags,
            SockProtocol::EthAll,
        )?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &TPACKET_V2)?;
        let number = |count: usize| u32::try_from(count).map_err(io::Error::other);
        let size = tpacket_req {
            tp_block_size: number(BLOCK)?,
            tp_block_nr: number(SLOTS * SLOT / BLOCK)?,
            tp_frame_size: number(SLOT)?,
            tp_frame_nr: number(SLOTS)?,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &size)?;
        let memory = MmapOptions::new().len(SLOTS * SLOT).map_raw(&socket)?;
        Ok(Self {
            socket,
            memory,
            next: 0,
        })
    }

    /// The packet of the next slot, which is full.
    fn seen(&self) -> Seen {
        let slot = self.slot(self.next);
        // SAFETY: a slot is SLOT bytes of the mapping, which lives as long as self, and starts with this header. The kernel
        // writes none of it until its status says that it may, which needs `&mut self`.
        let header = unsafe { ptr::read(slot.cast::<tpacket2_hdr>()) };
        // SAFETY: as above; behind the aligned header is the link-layer address, whose bytes have no invalid value.
        let link = unsafe { ptr::read_unaligned(slot.add(LINK).cast::<sockaddr_ll>()) };
        let start = usize::from(header.tp_net).min(SLOT);
        let length = usize::try_from(header.tp_snaplen).map_or(0, |length| length.min(SLOT - start));
        Seen {
            device: link.sll_ifindex,
            is_sent: link.sll_pkttype == libc::PACKET_OUTGOING,
            // SAFETY: as above; `start` and `length` are within the slot.
            bytes: unsafe { slice::from_raw_parts(slot.add(start), length) }.to_vec(),
        }
    }

    /// Waits for the next slot if one behind it is full: then another processor still copies to it.
    fn is_being_filled(&self) -> bool {
        (1..AHEAD).any(|ahead| self.is_full((self.next + ahead) % SLOTS))
            && (0..GIVEN).any(|_| {
                thread::yield_now();
                self.is_full(self.next)
            })
    }

    fn is_full(&self, slot: usize) -> bool {
        self.status(slot).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Whether a slot belongs to this process or to the kernel.
    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: the first field of a slot's header is its status, which is aligned and in the mapping, which lives as long
        // as self; it is only read and written as an atomic here.
        unsafe { AtomicU32::from_ptr(self.slot(slot).cast()) }
    }

    fn slot(&self, slot: usize) -> *mut u8 {
        debug_assert!(slot < SLOTS);
        self.memory.as_mut_ptr().wrapping_add(slot * SLOT)
    }
}

impl Iterator for Ring {
    type Item = Seen;

    fn next(&mut self) -> Option<Seen> {
        if !self.is_full(self.next) && !self.is_being_filled() {
            return None;
        }
        let seen = self.seen();
        let status = self.status(self.next);
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % SLOTS;
        Some(seen)
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
