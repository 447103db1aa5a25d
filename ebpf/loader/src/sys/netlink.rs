//! Netlink: requests, in bytes (RFC 3549; `linux/netlink.h`, `linux/rtnetlink.h`).
//!
//! Messages are not those of netlink-packet-route, which decodes every attribute, so that one that a newer kernel sends in
//! another length fails the whole list; and not rtnetlink's, which needs a runtime, and takes a list that was changed
//! meanwhile for whole. aya's own netlink is private.

use std::io;

use netlink_sys::{
    Socket,
    protocols::{NETLINK_ROUTE, NETLINK_SOCK_DIAG},
};

/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NLM_F_ACK`.
const ACK: u16 = 4;
/// `NLM_F_DUMP`.
const DUMP: u16 = 0x300;
/// `NLM_F_EXCL`: of a request that creates, only if it is not there.
pub(crate) const EXCLUSIVE: u16 = 0x200;
/// `NLM_F_CREATE`.
pub(crate) const CREATE: u16 = 0x400;
/// `NLM_F_REPLACE`.
pub(crate) const REPLACE: u16 = 0x100;

/// `sizeof(struct nlmsghdr)`.
const HEADER: usize = 16;
/// What one read takes; the kernel makes dumps of at most 32 KiB at a time.
const BUFFER: usize = 64 * 1024;
/// How often a dump is begun anew because what it lists was changed meanwhile (`NLM_F_DUMP_INTR`).
const ATTEMPTS: usize = 16;

/// A message in the making: the header's type and flags, and what follows it.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Message {
    /// With the family's own header, which is a whole number of words.
    pub(crate) fn new(kind: u16, flags: u16, header: &[u8]) -> Self {
        Self {
            kind,
            flags,
            body: header.to_vec(),
        }
    }

    /// Adds an attribute.
    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) -> io::Result<()> {
        push_attribute(&mut self.body, kind, value)
    }

    fn bytes(&self, sequence: u32, flags: u16) -> io::Result<Vec<u8>> {
        let length = u32::try_from(HEADER + self.body.len()).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(HEADER + self.body.len());
        bytes.extend(length.to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend((self.flags | REQUEST | flags).to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        // Our port: the kernel knows it.
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(&self.body);
        Ok(bytes)
    }
}

/// Adds an attribute to a body, or to another attribute's value.
pub(crate) fn push_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) -> io::Result<()> {
    let length = u16::try_from(4 + value.len()).map_err(io::Error::other)?;
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
    Ok(())
}

/// The attributes in these bytes, as far as they are whole: type without its flags, and value.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
    const FLAGS: u16 = 0xc000;
    std::iter::from_fn(move || {
        let (length, kind) = (u16_at(bytes, 0)?, u16_at(bytes, 2)?);
        let length = usize::from(length);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & !FLAGS, value))
    })
}

/// The number at an offset.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(
        bytes.get(at..at.checked_add(2)?)?.try_into().ok()?,
    ))
}

/// The number at an offset.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

/// Which part of the kernel is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// Devices, filters: `NETLINK_ROUTE`.
    Route,
    /// Sockets: `NETLINK_SOCK_DIAG`.
    Sockets,
}

/// A socket of the calling thread's network namespace.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    pub(crate) fn open(family: Family) -> io::Result<Self> {
        let socket = Socket::new(match family {
            Family::Route => NETLINK_ROUTE,
            Family::Sockets => NETLINK_SOCK_DIAG,
        })?;
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends a request and waits for the kernel's answer, which is yes or an error with its reason.
    pub(crate) fn request(&mut self, message: &Message) -> io::Result<()> {
        self.send(message, ACK)?;
        self.receive(message, |_| ()).map(drop)
    }

    /// Asks for a list: calls `each` with every message of it, from the family's own header on.
    pub(crate) fn dump(&mut self, message: &Message, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            self.send(message, DUMP)?;
            let mut bodies: Vec<Vec<u8>> = Vec::new();
            if self.receive(message, |body| bodies.push(body.to_vec()))? {
                bodies.iter().for_each(|body| each(body));
                return Ok(());
            }
        }
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("the list was changed {ATTEMPTS} times while it was read"),
        ))
    }

    /// As [`dump`](Self::dump), where what is changed meanwhile may be listed or not: each message once, at once.
    pub(crate) fn stream(&mut self, message: &Message, each: impl FnMut(&[u8])) -> io::Result<()> {
        self.send(message, DUMP)?;
        self.receive(message, each).map(drop)
    }

    fn send(&mut self, message: &Message, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = message.bytes(self.sequence, flags)?;
        if self.socket.send(&bytes, 0)? == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Reads until the answer's end. `false`: what it lists was changed meanwhile.
    fn receive(&self, message: &Message, mut each: impl FnMut(&[u8])) -> io::Result<bool> {
        const ERROR: u16 = 2;
        const DONE: u16 = 3;
        const INTERRUPTED: u16 = 0x10;
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut steady = true;
        loop {
            let mut rest = self.read(&mut buffer)?;
            while let (Some(length), Some(kind), Some(flags), Some(sequence)) =
                (u32_at(rest, 0), u16_at(rest, 4), u16_at(rest, 6), u32_at(rest, 8))
            {
                let length = usize::try_from(length).map_err(io::Error::other)?;
                let Some(body) = rest.get(HEADER..length) else {
                    return Err(io::ErrorKind::InvalidData.into());
                };
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                // An answer to what was given up before.
                if sequence != self.sequence {
                    continue;
                }
                steady &= flags & INTERRUPTED == 0;
                match kind {
                    ERROR | DONE => {
                        return outcome(body, kind == ERROR, flags, message.kind).map(|()| steady);
                    }
                    _ => each(body),
                }
            }
        }
    }

    fn read<'a>(&self, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        loop {
            buffer.clear();
            match self.socket.recv(buffer, libc::MSG_TRUNC) {
                // The length of the message, also of one that the buffer has no room for.
                Ok(length) => {
                    return buffer
                        .get(..length)
                        .ok_or_else(|| io::Error::from_raw_os_error(libc::EMSGSIZE));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// What an NLMSG_ERROR or NLMSG_DONE says: a negative errno or 0, and maybe why.
fn outcome(body: &[u8], is_error: bool, flags: u16, request: u16) -> io::Result<()> {
    /// `NLM_F_ACK_TLVS`.
    const REASONS: u16 = 0x200;
    /// `NLMSGERR_ATTR_MSG`.
    const REASON: u16 = 1;
    let number = u32_at(body, 0).unwrap_or(0).cast_signed();
    if number == 0 {
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(-number);
    // After the number comes, of an error, the header of the request, and no more of it (NETLINK_CAP_ACK).
    let after = if is_error { 4 + HEADER } else { 4 };
    let reason = (flags & REASONS != 0)
        .then(|| attributes(body.get(after..).unwrap_or_default()).find(|(kind, _)| *kind == REASON))
        .flatten();
    match reason {
        Some((_, text)) => {
            let text = String::from_utf8_lossy(text.strip_suffix(&[0]).unwrap_or(text)).into_owned();
            Err(Refused { error, text, request }.into())
        }
        None => Err(error),
    }
}

/// An error that the kernel has explained.
#[derive(Debug, thiserror::Error)]
#[error("{error}: {text} (netlink request {request})")]
struct Refused {
    error: io::Error,
    text: String,
    request: u16,
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        Self::new(refused.error.kind(), refused)
    }
}

/// The number of an error, also of one that the kernel has explained.
pub(crate) fn errno(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| {
        let refused = error.get_ref()?.downcast_ref::<Refused>()?;
        refused.error.raw_os_error()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_read_back() {
        let mut body = Vec::new();
        push_attribute(&mut body, 1, b"bpf\0").expect("short");
        push_attribute(&mut body, 0x8002, &[7, 8, 9, 10, 11]).expect("short");
        assert_eq!(body.len(), 8 + 12);
        let read: Vec<_> = attributes(&body).collect();
        assert_eq!(read, [(1, b"bpf\0".as_slice()), (2, &[7, 8, 9, 10, 11])]);
    }

    #[test]
    fn attributes_that_are_cut_off_end_the_list() {
        let mut body = Vec::new();
        push_attribute(&mut body, 1, &[1, 2, 3, 4]).expect("short");
        for length in 0..body.len() {
            assert_eq!(attributes(&body[..length]).count(), 0, "{length} bytes");
        }
        // A length that is less than the attribute's own header.
        assert_eq!(attributes(&[3, 0, 1, 0, 0, 0, 0, 0]).count(), 0);
    }

    #[test]
    fn the_kernels_reason_is_part_of_the_error() {
        let mut body = (-libc::EINVAL).to_ne_bytes().to_vec();
        body.extend([0; HEADER]);
        push_attribute(&mut body, 1, b"Parent Qdisc doesn't exists\0").expect("short");
        let error = outcome(&body, true, 0x200, 44).expect_err("an error");
        assert!(
            error.to_string().contains("Parent Qdisc doesn't exists"),
            "{error}"
        );
        assert_eq!(errno(&error), Some(libc::EINVAL));
        assert_eq!(
            errno(&io::Error::from_raw_os_error(libc::ENOENT)),
            Some(libc::ENOENT)
        );
        outcome(&[0; 4], true, 0, 44).expect("0 is no error");
    }
}
