//! The TCP connections of a process to some addresses: read, and reset.
//!
//! [`Connections`] runs `plumbline node connections` on the node. It works for any process: the kernel lists its connections
//! (proc_pid_net(5)) and resets them (`SOCK_DESTROY`, sock_diag(7)), with a RST to the other end and an error for the process.

use std::{
    collections::BTreeSet,
    fs, io,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
};

use cluster::Cluster;
use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
    },
};
use serde::{Deserialize, Serialize};

use crate::{FaultError, commands};

/// TCP states of connections that are established or being established (`tcp_states.h`).
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;

/// Arguments of `plumbline node connections`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The process id on the node.
    #[arg(long, value_name = "PID")]
    process: u32,
    /// Remote address in the process's sockets, an unspecified one for any; may be given several times
    #[arg(long = "to", value_name = "ADDRESS:PORT")]
    to: Vec<SocketAddr>,
    /// Resets them, and prints those that were
    #[arg(long)]
    reset: bool,
}

/// The connections of a process to some addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// Established ones, by local address.
    pub established: BTreeSet<SocketAddr>,
    /// Those whose SYN is not answered yet, by local address.
    pub begun: BTreeSet<SocketAddr>,
    /// Failed connection attempts of all processes in its network namespace so far (`AttemptFails` of RFC 4022), without those
    /// that were refused before their first packet.
    pub failed: u64,
}

impl Connections {
    /// Reads those of a process on a node.
    ///
    /// # Errors
    /// The node can't be reached, or the process can't be looked at: it has ended.
    pub async fn of(
        cluster: &Cluster,
        node: &str,
        process: u32,
        to: &[SocketAddr],
    ) -> Result<Self, FaultError> {
        ask(cluster, node, process, to, false).await
    }

    /// Resets those of a process on a node. Returns them.
    ///
    /// # Errors
    /// As [`of`](Self::of); or the kernel can't (`CONFIG_INET_DIAG_DESTROY`).
    pub async fn reset(
        cluster: &Cluster,
        node: &str,
        process: u32,
        to: &[SocketAddr],
    ) -> Result<Self, FaultError> {
        ask(cluster, node, process, to, true).await
    }
}

async fn ask(
    cluster: &Cluster,
    node: &str,
    process: u32,
    to: &[SocketAddr],
    reset: bool,
) -> Result<Connections, FaultError> {
    let mut arguments = vec!["connections".to_owned(), format!("--process={process}")];
    arguments.extend(to.iter().map(|address| format!("--to={address}")));
    arguments.extend(reset.then(|| "--reset".to_owned()));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    commands::plumbline(cluster, node, &arguments).await
}

/// Reads the connections, on the node.
///
/// # Errors
/// A message for stderr: there is no such process, or its sockets can't be reset.
pub fn look(arguments: &Arguments) -> Result<Connections, String> {
    let process = PathBuf::from(format!("/proc/{}", arguments.process));
    let sockets = sockets(&process)?;
    let mut found = Connections {
        failed: failed(&read(&process.join("net/snmp"))?)?,
        ..Connections::default()
    };
    for table in ["net/tcp", "net/tcp6"] {
        let text = match fs::read_to_string(process.join(table)) {
            // No IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            text => text.map_err(|error| format!("can't read {}/{table}: {error}", process.display()))?,
        };
        for line in text.lines().skip(1).filter_map(Line::parse) {
            let is_asked = arguments.to.iter().any(|to| is_to(*to, line.remote));
            if !sockets.contains(&line.inode) || !is_asked {
                continue;
            }
            let set = match line.state {
                ESTABLISHED => &mut found.established,
                SYN_SENT => &mut found.begun,
                _ => continue,
            };
            // One that has just ended was not reset.
            if !arguments.reset || destroy(&line)? {
                set.insert(line.local);
            }
        }
    }
    Ok(found)
}

/// Whether a peer is what was asked for: this address and port, or, if the address is unspecified, this port of any address.
fn is_to(asked: SocketAddr, peer: SocketAddr) -> bool {
    asked.port() == peer.port() && (asked.ip().is_unspecified() || asked.ip() == peer.ip())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("can't read {}: {error}", path.display()))
}

/// Inodes of the sockets that a process has open.
fn sockets(process: &Path) -> Result<BTreeSet<u64>, String> {
    let folder = process.join("fd");
    let list = fs::read_dir(&folder).map_err(|error| format!("can't read {}: {error}", folder.display()))?;
    let inode = |path: PathBuf| {
        let link = fs::read_link(path).ok()?;
        let number = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        number.parse().ok()
    };
    Ok(list.flatten().filter_map(|entry| inode(entry.path())).collect())
}

/// `AttemptFails` in a /proc/PID/net/snmp.
fn failed(snmp: &str) -> Result<u64, String> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next(), lines.next());
    let pairs = names
        .zip(values)
        .map(|(names, values)| names.split(' ').zip(values.split(' ')));
    pairs
        .and_then(|mut pairs| pairs.find(|(name, _)| *name == "AttemptFails"))
        .and_then(|(_, value)| value.parse().ok())
        .ok_or_else(|| format!("expected AttemptFails in net/snmp, found {snmp:?}"))
}

/// A line of /proc/PID/net/tcp or tcp6.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    local: SocketAddr,
    remote: SocketAddr,
    state: u8,
    inode: u64,
    is_ipv6: bool,
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, is_ipv6) = address(fields.get(1)?)?;
        Some(Self {
            local,
            remote: address(fields.get(2)?)?.0,
            state: u8::from_str_radix(fields.get(3)?, 16).ok()?,
            inode: fields.get(9)?.parse().ok()?,
            is_ipv6,
        })
    }
}

/// Parses an address (32-bit words in native byte order) and port, and whether the socket is an IPv6 one. IPv4-mapped
/// addresses become IPv4.
fn address(field: &str) -> Option<(SocketAddr, bool)> {
    let (address, port) = field.split_once(':')?;
    let mut bytes = Vec::new();
    for at in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let (address, is_ipv6) = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(bytes) => (IpAddr::from(bytes), false),
        Err(_) => (
            IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical(),
            true,
        ),
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    Some((SocketAddr::new(address, port), is_ipv6))
}

/// Resets a connection of this network namespace. Returns whether it still existed.
fn destroy(line: &Line) -> Result<bool, String> {
    let refused = |errno: Errno| match errno {
        Errno::EOPNOTSUPP => {
            "the kernel can't reset connections of others: it needs CONFIG_INET_DIAG_DESTROY".to_owned()
        }
        other => format!(
            "the kernel does not reset {} → {}: {other}",
            line.local, line.remote
        ),
    };
    let netlink = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )
    .map_err(refused)?;
    let kernel = NetlinkAddr::new(0, 0);
    sendto(netlink.as_raw_fd(), &request(line), &kernel, MsgFlags::empty()).map_err(refused)?;
    let mut answer = [0; 256];
    let length = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty()).map_err(refused)?;
    // nlmsghdr, then the error of nlmsgerr (netlink(7)).
    let error = answer
        .get(HEADER..HEADER + 4)
        .filter(|_| length >= HEADER + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_ne_bytes)
        .ok_or_else(|| format!("the kernel answered {length} bytes, expected an acknowledgement"))?;
    match Errno::from_raw(-error) {
        _ if error == 0 => Ok(true),
        Errno::ENOENT => Ok(false),
        errno => Err(refused(errno)),
    }
}

/// Bytes of an nlmsghdr.
const HEADER: usize = 16;

/// nlmsghdr and inet_diag_req_v2 (linux/inet_diag.h): the connection by its ends, without a cookie.
fn request(line: &Line) -> Vec<u8> {
    const SOCK_DESTROY: u16 = 21;
    const REQUEST_ACK: u16 = 0x1 | 0x4;
    const LENGTH: u32 = 16 + 56;
    const IPV4: u8 = 2;
    const IPV6: u8 = 10;
    const TCP: u8 = 6;
    let mut request = LENGTH.to_ne_bytes().to_vec();
    request.extend(SOCK_DESTROY.to_ne_bytes());
    request.extend(REQUEST_ACK.to_ne_bytes());
    // Sequence and port.
    request.extend([0; 8]);
    let family = if line.is_ipv6 { IPV6 } else { IPV4 };
    // No extensions, and a byte of padding.
    request.extend([family, TCP, 0, 0]);
    // Of any state.
    request.extend(u32::MAX.to_ne_bytes());
    request.extend(line.local.port().to_be_bytes());
    request.extend(line.remote.port().to_be_bytes());
    for end in [line.local, line.remote] {
        request.extend(match (end.ip(), line.is_ipv6) {
            (IpAddr::V4(address), true) => address.to_ipv6_mapped().octets(),
            (IpAddr::V6(address), _) => address.octets(),
            (IpAddr::V4(address), false) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&address.octets());
                bytes
            }
        });
    }
    // Any device; INET_DIAG_NOCOOKIE.
    request.extend([0; 4]);
    request.extend([0xff; 8]);
    request
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    fn line(text: &str) -> Line {
        Line::parse(text).expect("a line")
    }

    #[test]
    fn an_unspecified_address_is_the_port_of_any() {
        let parsed = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (asked, peer, is) in [
            ("192.0.2.1:6443", "192.0.2.1:6443", true),
            ("192.0.2.1:6443", "192.0.2.2:6443", false),
            ("[::]:6443", "192.0.2.2:6443", true),
            ("0.0.0.0:6443", "[2001:db8::1]:6443", true),
            ("[::]:6443", "192.0.2.2:443", false),
        ] {
            assert_eq!(is_to(parsed(asked), parsed(peer)), is, "{asked} {peer}");
        }
    }

    #[test]
    fn lines_of_both_families_are_read() {
        let four = "   1: 0100007F:1F90 0200A8C0:01BB 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0";
        assert_eq!(
            line(four),
            Line {
                local: "127.0.0.1:8080".parse().expect("an address"),
                remote: "192.168.0.2:443".parse().expect("an address"),
                state: ESTABLISHED,
                inode: 4711,
                is_ipv6: false,
            }
        );
        let six = "   0: 000000FD000000000000000001000000:1F90 0000000000000000FFFF00000200A8C0:01BB 02 0:0 0:0 0 0 0 12 1 0";
        let six = line(six);
        assert_eq!(six.local.to_string(), "[fd00::1]:8080");
        assert_eq!(
            (six.remote.to_string().as_str(), six.is_ipv6),
            ("192.168.0.2:443", true)
        );
        assert_eq!(Line::parse("  sl  local_address rem_address"), None);
    }

    #[test]
    fn failed_dials_are_found_by_their_name() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoMin ActiveOpens AttemptFails\nTcp: 200 7 3\n";
        assert_eq!(failed(text), Ok(3));
        assert!(failed("Tcp: RtoMin\nTcp: 200\n").is_err());
    }

    #[test]
    fn only_connections_of_the_process_to_the_addresses_are_reset_and_their_ends_notice() {
        if !testing::root_or_skip(&testing::current()) {
            return;
        }
        let (listener, other) = (
            TcpListener::bind("127.0.0.1:0").unwrap(),
            TcpListener::bind("[::1]:0").unwrap(),
        );
        let to = listener.local_addr().unwrap();
        let mut one = TcpStream::connect(to).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        let mut kept = TcpStream::connect(other.local_addr().unwrap()).unwrap();
        let own = |reset, to| {
            look(&Arguments {
                process: std::process::id(),
                to: vec![to],
                reset,
            })
            .unwrap()
        };
        let local = one.local_addr().unwrap();
        assert_eq!(own(false, to).established, BTreeSet::from([local]));
        assert_eq!(own(true, to).established, BTreeSet::from([local]));
        assert!(own(false, to).established.is_empty());
        let mut byte = [0];
        assert_eq!(
            one.read(&mut byte).unwrap_err().raw_os_error(),
            Some(nix::libc::ECONNABORTED)
        );
        assert_eq!(
            accepted.read(&mut byte).unwrap_err().kind(),
            io::ErrorKind::ConnectionReset
        );

        let to = other.local_addr().unwrap();
        let found = own(true, to);
        assert_eq!(found.established, BTreeSet::from([kept.local_addr().unwrap()]));
        assert!(kept.read(&mut byte).is_err());
    }
}
