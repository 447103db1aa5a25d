//! One UDP port of a server.
//!
//! On a host with several addresses a reply must be sent from the address that the request was sent to. The kernel
//! reports and sets it as packet information (ip(7), ipv6(7): `IP_PKTINFO`, `IPV6_PKTINFO`).

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::AsRawFd,
    sync::Arc,
};

use nix::{
    cmsg_space, libc,
    sys::socket::{
        AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrStorage,
        bind, recvmsg, sendmsg, setsockopt, socket, sockopt,
    },
};
use tokio::{io::Interest, net::UdpSocket};

use super::{Mode, Shared};
use crate::wire;

/// Requested receive buffer in bytes: datagrams that wait while this process does not run. The kernel's default holds
/// about 200, which a busy machine fills within a second; a lost datagram would look like the datapath's fault.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Sent in place of an answer when a request with a size arrived changed: the client records it as garbled.
const DAMAGED: &[u8] = b"the request has arrived, and not as it was sent\n";

#[derive(Debug)]
pub(super) struct Port {
    socket: UdpSocket,
    number: u16,
}

/// One received datagram.
struct Received {
    length: usize,
    source: SocketAddr,
    destination: IpAddr,
}

impl Port {
    /// On an IPv6 address, `only_ipv6` leaves IPv4 to another socket of the same port.
    pub(super) fn bind(address: SocketAddr, only_ipv6: bool) -> io::Result<Self> {
        let family = if address.is_ipv4() {
            AddressFamily::Inet
        } else {
            AddressFamily::Inet6
        };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(family, SockType::Datagram, flags, None)?;
        if address.is_ipv4() {
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        } else {
            setsockopt(&socket, sockopt::Ipv6V6Only, &only_ipv6)?;
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
        }
        bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
        let socket = std::net::UdpSocket::from(socket);
        // More than `net.core.rmem_max` needs CAP_NET_ADMIN; otherwise the kernel sets as much as it permits.
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)
            .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER))?;
        let number = socket.local_addr()?.port();
        Ok(Self {
            socket: UdpSocket::from_std(socket)?,
            number,
        })
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }

    pub(super) async fn serve(self, shared: Arc<Shared>) {
        let stop = shared.stop.clone();
        stop.run_until_cancelled(self.answer(shared)).await;
    }

    async fn answer(self, shared: Arc<Shared>) {
        let port = Arc::new(self);
        let mut buffer = [0; wire::MAX_DATAGRAM];
        loop {
            let receive = port
                .socket
                .async_io(Interest::READABLE, || receive(&port.socket, &mut buffer));
            // An error belongs to one datagram (such as an ICMP message about an earlier reply), so the server
            // continues.
            let Ok(Some(received)) = receive.await else {
                continue;
            };
            let datagram = &buffer[..received.length];
            let Some(request) = wire::parse(datagram) else {
                continue;
            };
            let whole = wire::is_whole(datagram, &request.nonce, request.bytes);
            match shared.mode {
                Mode::Refuse | Mode::HalfClose => {}
                _ if !whole => port.send(DAMAGED, &received).await,
                Mode::Prompt => port.reply(&shared, received, request).await,
                Mode::Slow(wait) => {
                    let Ok(room) = shared.delayed.clone().try_acquire_owned() else {
                        continue;
                    };
                    let (port, shared) = (port.clone(), shared.clone());
                    tokio::spawn(async move {
                        tokio::time::sleep(wait).await;
                        port.reply(&shared, received, request).await;
                        drop(room);
                    });
                }
            }
        }
    }

    /// Logs and answers, if the request asks for it; neither if it cannot log, which ends the server.
    async fn reply(&self, shared: &Shared, received: Received, request: wire::Request) {
        let destination = SocketAddr::new(received.destination, self.number);
        let wire::Request {
            nonce,
            bytes,
            one_way,
            ..
        } = request;
        let Some(answer) = shared.answer("UDP", self.number, received.source, destination, nonce) else {
            return;
        };
        if one_way {
            return;
        }
        let datagram = wire::filled(wire::line(&answer), &answer.nonce, bytes);
        self.send(&datagram, &received).await;
    }

    /// Sends a reply to the sender. A failed send is a lost datagram to the client.
    async fn send(&self, datagram: &[u8], received: &Received) {
        let send = self
            .socket
            .async_io(Interest::WRITABLE, || reply(&self.socket, datagram, received));
        drop(send.await);
    }
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Option<Received>> {
    let mut parts = [IoSliceMut::new(buffer)];
    let mut control = cmsg_space!(libc::in_pktinfo, libc::in6_pktinfo);
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut control),
        MsgFlags::MSG_DONTWAIT,
    )?;
    let source = message.address.as_ref().and_then(socket_address);
    let destination = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            Some(IpAddr::V4(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes())))
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr))),
        _ => None,
    });
    let received = source.zip(destination);
    Ok(received.map(|(source, destination)| Received {
        length: message.bytes,
        source,
        destination,
    }))
}

fn reply(socket: &UdpSocket, line: &[u8], received: &Received) -> io::Result<usize> {
    let parts = [IoSlice::new(line)];
    let to = SockaddrStorage::from(received.source);
    let send = |control: ControlMessage<'_>| {
        sendmsg(
            socket.as_raw_fd(),
            &parts,
            &[control],
            MsgFlags::MSG_DONTWAIT,
            Some(&to),
        )
    };
    let sent = match received.destination {
        IpAddr::V4(from) => send(ControlMessage::Ipv4PacketInfo(&libc::in_pktinfo {
            ipi_ifindex: 0,
            ipi_spec_dst: libc::in_addr {
                s_addr: u32::from_ne_bytes(from.octets()),
            },
            ipi_addr: libc::in_addr { s_addr: 0 },
        })),
        IpAddr::V6(from) => send(ControlMessage::Ipv6PacketInfo(&libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr {
                s6_addr: from.octets(),
            },
            ipi6_ifindex: 0,
        })),
    };
    Ok(sent?)
}

fn socket_address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddr::new(IpAddr::V4(v4.ip()), v4.port()));
    }
    storage
        .as_sockaddr_in6()
        .map(|v6| SocketAddr::new(IpAddr::V6(v6.ip()), v6.port()))
}
