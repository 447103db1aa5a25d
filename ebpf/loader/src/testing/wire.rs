//! Frames at a device, as they are: sent and received by a packet socket.
//!
//! Beside each frame there is what a device says of its checksum (`struct virtio_net_hdr`): [`Offload`]. A tag that the kernel keeps
//! beside a frame, as it does with the first of every one that comes in, is put back where it was.

use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

/// Bytes of `struct virtio_net_hdr`.
const HEADER: usize = 10;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`
const NEEDS_CHECKSUM: u8 = 1;
/// More than any frame.
const MOST: usize = 1 << 16;

/// A checksum that is left to a device: CHECKSUM_PARTIAL of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offload {
    /// Offset in the frame of the first byte that is summed.
    pub start: u16,
    /// Offset from there of the field, which has the sum of the pseudo header.
    pub offset: u16,
}

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wired {
    /// From the Ethernet header on.
    pub frame: Vec<u8>,
    /// Whether its checksum is still to be completed.
    pub offload: Option<Offload>,
}

impl Wired {
    /// As `struct virtio_net_hdr` and the frame.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        if let Some(Offload { start, offset }) = self.offload {
            bytes[0] = NEEDS_CHECKSUM;
            bytes[6..8].copy_from_slice(&start.to_ne_bytes());
            bytes[8..10].copy_from_slice(&offset.to_ne_bytes());
        }
        bytes.extend(&self.frame);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let (header, frame) = bytes
            .split_first_chunk::<HEADER>()
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let [flags, _, _, _, _, _, a, b, c, d] = *header;
        let offload = (flags & NEEDS_CHECKSUM != 0).then_some(Offload {
            start: u16::from_ne_bytes([a, b]),
            offset: u16::from_ne_bytes([c, d]),
        });
        Ok(Self {
            frame: frame.to_vec(),
            offload,
        })
    }
}

/// A packet socket at one device: sends by it, and sees what comes in by it.
#[derive(Debug)]
pub struct PacketSocket(File);

impl PacketSocket {
    /// At the device with this index, of the calling thread's network namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(ifindex: u32) -> io::Result<Self> {
        const ALL: u16 = libc::ETH_P_ALL as u16;
        const OPTIONS: [libc::c_int; 3] = [
            libc::PACKET_AUXDATA,
            libc::PACKET_VNET_HDR,
            // PACKET_IGNORE_OUTGOING of `linux/if_packet.h`.
            23,
        ];
        // SAFETY: no addresses; the descriptor is owned by nothing else.
        let socket = unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            // Nothing is received before it is bound.
            let fd = libc::socket(libc::AF_PACKET, kind, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        for option in OPTIONS {
            let on: libc::c_int = 1;
            // SAFETY: an int, of its size.
            let set = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_PACKET,
                    option,
                    (&raw const on).cast(),
                    size_of::<libc::c_int>() as libc::socklen_t,
                )
            };
            if set != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: all zero is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ALL.to_be();
        address.sll_ifindex = ifindex.cast_signed();
        // SAFETY: a sockaddr_ll, of its size.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if bound != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(File::from(socket)))
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn send(&self, wired: &Wired) -> io::Result<()> {
        (&self.0).write_all(&wired.to_bytes())
    }

    /// The next frame that came in; `None`: there is none yet.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn receive(&self) -> io::Result<Option<Wired>> {
        let mut buffer = vec![0_u8; MOST];
        let mut beside = Beside::default();
        let mut part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: all zero is a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut beside).cast();
        message.msg_controllen = size_of::<Beside>();
        // SAFETY: there is room for what the lengths say, until the call returns.
        let length = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0) };
        let Ok(length) = usize::try_from(length) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock => Ok(None),
                _ => Err(error),
            };
        };
        let mut wired = Wired::from_bytes(&buffer[..length])?;
        if let Some(tag) = beside.tag() {
            wired.frame.splice(12..12, tag);
            if let Some(offload) = &mut wired.offload {
                offload.start += 4;
            }
        }
        Ok(Some(wired))
    }
}

/// What comes beside a frame: one control message with a `struct tpacket_auxdata`.
#[repr(C, align(8))]
#[derive(Default)]
struct Beside {
    /// Of the header: length, level and type.
    length: usize,
    level: i32,
    kind: i32,
    status: u32,
    frame_length: u32,
    captured: u32,
    link_offset: u16,
    network_offset: u16,
    tag: u16,
    protocol: u16,
    pad: u32,
}

impl Beside {
    /// The four bytes of the tag, if there is one.
    fn tag(&self) -> Option<[u8; 4]> {
        /// `TP_STATUS_VLAN_VALID` and `TP_STATUS_VLAN_TPID_VALID`
        const VALID: u32 = 1 << 4 | 1 << 6;
        let [a, b] = self.protocol.to_be_bytes();
        let [c, d] = self.tag.to_be_bytes();
        (self.kind == libc::PACKET_AUXDATA && self.status & VALID == VALID).then_some([a, b, c, d])
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
