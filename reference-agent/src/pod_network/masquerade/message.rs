//! Messages of nfnetlink, as far as a transaction of nf_tables needs them (linux/netfilter/nfnetlink.h, nf_tables.h).

use std::{io, os::fd::AsRawFd as _};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
        socket, sockopt::SndBufForce,
    },
};

/// `NFNL_SUBSYS_NFTABLES`.
const SUBSYSTEM: u16 = 10;
/// `NFPROTO_INET`: tables of both families.
const INET: u8 = 1;
/// `NLMSG_ERROR`, `NFNL_MSG_BATCH_BEGIN`, `NFNL_MSG_BATCH_END`.
const ANSWER: u16 = 2;
const BEGIN: u16 = 16;
const END: u16 = 17;
/// `NLM_F_REQUEST`, `NLM_F_ACK`, `NLM_F_CREATE` of linux/netlink.h.
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const CREATE: u16 = 0x400;
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;
/// A transaction is one datagram: a hundred thousand ranges.
const LARGEST: usize = 8 << 20;
/// Bytes before the attributes: nlmsghdr and nfgenmsg.
const HEADERS: usize = 20;

/// The type of a message (`enum nf_tables_msg_types`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind(u16);

impl Kind {
    pub(super) const NEW_TABLE: Self = Self(0);
    pub(super) const GET_TABLE: Self = Self(1);
    pub(super) const DELETE_TABLE: Self = Self(2);
    pub(super) const NEW_CHAIN: Self = Self(3);
    pub(super) const NEW_RULE: Self = Self(6);
    pub(super) const NEW_SET: Self = Self(9);
    pub(super) const NEW_ELEMENTS: Self = Self(12);
    pub(super) const GET_GENERATION: Self = Self(16);
}

/// A transaction: the kernel does all of it, or nothing.
#[derive(Debug)]
pub(super) struct Batch(Vec<u8>);

impl Batch {
    pub(super) fn new() -> Self {
        let mut batch = Self(Vec::new());
        batch.message(BEGIN, REQUEST, 0, SUBSYSTEM, &[]);
        batch
    }

    pub(super) fn add(&mut self, Kind(kind): Kind, attributes: &[Vec<u8>]) {
        let flags = REQUEST | ACKNOWLEDGE | CREATE;
        self.message(SUBSYSTEM << 8 | kind, flags, INET, 0, attributes);
    }

    /// Everything in it is an attribute of 64 KiB at most, so that lengths fit.
    fn message(&mut self, kind: u16, flags: u16, family: u8, resource: u16, attributes: &[Vec<u8>]) {
        let length = HEADERS + attributes.iter().map(Vec::len).sum::<usize>();
        let out = &mut self.0;
        out.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend(flags.to_ne_bytes());
        // Sequence number and sender: answers are of this socket's only transaction.
        out.extend([0; 8]);
        out.extend([family, 0]);
        out.extend(resource.to_be_bytes());
        out.extend(attributes.concat());
    }

    /// Commits it, in the calling thread's network namespace.
    ///
    /// # Errors
    /// The first error; nothing is changed then.
    pub(super) fn send(mut self) -> io::Result<()> {
        self.message(END, REQUEST, 0, SUBSYSTEM, &[]);
        self.exchange(&mut |_| ())
    }

    /// Sends one request outside of transactions.
    ///
    /// # Errors
    /// The kernel's error; `ENOENT`: there is no such object.
    pub(super) fn ask(kind: Kind, attributes: &[Vec<u8>]) -> io::Result<()> {
        Self::question(kind, attributes).exchange(&mut |_| ())
    }

    /// Sends a request whose answer is an attribute with a number.
    ///
    /// # Errors
    /// The kernel's error; `InvalidData`: the answer lacks the attribute.
    pub(super) fn number(kind: Kind, wanted: u16) -> io::Result<u32> {
        let mut found = None;
        Self::question(kind, &[]).exchange(&mut |datagram| found = found.or(number_in(datagram, wanted)))?;
        found.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer has no number"))
    }

    fn question(Kind(kind): Kind, attributes: &[Vec<u8>]) -> Self {
        let mut question = Self(Vec::new());
        question.message(SUBSYSTEM << 8 | kind, REQUEST | ACKNOWLEDGE, INET, 0, attributes);
        question
    }

    /// Sends and receives: the kernel answers before the call to send returns. `show` gets the answers without an error.
    fn exchange(&self, show: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkNetFilter,
        )?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        setsockopt(&socket, SndBufForce, &LARGEST)?;
        send(socket.as_raw_fd(), &self.0, MsgFlags::empty())?;
        let mut buffer = vec![0; 1 << 16];
        let mut answered = false;
        loop {
            match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => {
                    check(&buffer[..length])?;
                    show(&buffer[..length]);
                    answered = true;
                }
                Err(Errno::EAGAIN) if answered => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The number of an attribute of a datagram's first message, if that is no acknowledgement.
fn number_in(datagram: &[u8], wanted: u16) -> Option<u32> {
    let kind = u16::from_ne_bytes(*datagram.get(4..)?.first_chunk()?);
    let mut attributes = datagram.get(HEADERS..).filter(|_| kind != ANSWER)?;
    while let Some((length, rest)) = attributes.split_first_chunk::<2>() {
        let length = usize::from(u16::from_ne_bytes(*length));
        let kind = u16::from_ne_bytes(*rest.first_chunk()?);
        if kind == wanted {
            return Some(u32::from_be_bytes(*attributes.get(4..)?.first_chunk()?));
        }
        attributes = attributes.get(length.next_multiple_of(4).max(4)..)?;
    }
    None
}

/// The first error in a datagram of answers.
fn check(mut datagram: &[u8]) -> io::Result<()> {
    while let Some((length, rest)) = datagram.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_ne_bytes(*length)).unwrap_or(usize::MAX);
        let kind = rest.first_chunk::<2>().map(|kind| u16::from_ne_bytes(*kind));
        let code = datagram.get(16..20).and_then(<[u8]>::first_chunk::<4>);
        if let (Some(ANSWER), Some(code)) = (kind, code) {
            let code = i32::from_ne_bytes(*code);
            if code != 0 {
                return Err(io::Error::from_raw_os_error(code.saturating_neg()));
            }
        }
        let next = length.next_multiple_of(4).max(4);
        datagram = datagram.get(next..).unwrap_or_default();
    }
    Ok(())
}

/// An attribute.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut out = Vec::with_capacity(usize::from(length).next_multiple_of(4));
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// One that holds others.
pub(super) fn nested(kind: u16, inner: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NESTED, &inner.concat())
}

/// A number: nf_tables has them in network order.
pub(super) fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

/// A null-terminated text.
pub(super) fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}
