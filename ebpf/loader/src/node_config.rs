//! What follows from the options and from the machine: CONFIG, and the sizes of the maps of connections and sockets.

use std::{fs, io, ops::RangeInclusive};

use lb_abi::{Address, Config, capacity};

use crate::{LoaderError, NodeOptions, cgroup::Cgroup, sys};

/// What the programs are told.
pub(crate) fn config(options: &NodeOptions) -> Result<Config, LoaderError> {
    let own_cgroup = match &options.own_cgroup {
        Some(path) => Cgroup::open(path)?.id(),
        None => 0,
    };
    let ports = options.snat_ports.clone().unwrap_or(NodeOptions::SNAT_PORTS);
    if ports.is_empty() || *ports.start() == 0 {
        return Err(LoaderError::Option {
            option: "ports for packets to remote backends",
            expected: "first and last port, from 1 on, the last not below the first".to_owned(),
            found: format!("{}–{}", ports.start(), ports.end()),
        });
    }
    let local = with_node_ports(local_ports()?);
    Ok(Config {
        own_cgroup,
        node_netns: namespace_cookie()?,
        node_v4: options
            .v4
            .map_or(Address::UNSPECIFIED_V4, |v4| Address::v4(v4.octets())),
        node_v6: options
            .v6
            .map_or(Address::UNSPECIFIED_V6, |v6| Address::v6(v6.octets())),
        snat_first: *ports.start(),
        snat_last: *ports.end(),
        local_first: *local.start(),
        local_last: *local.end(),
        rejects_per_second: options.rejects_per_second,
        ..Config::NONE
    })
}

/// With the addresses of the CONFIG that is there, where the options give none; and with its Service ranges, which the options
/// never give.
pub(crate) fn keep_addresses(config: Config, options: &NodeOptions, there: &Config) -> Config {
    let keep = |given: bool, new: Address, old: Address| {
        // A CONFIG that was never written has no address of either family.
        if given || old.is_v4() != new.is_v4() {
            new
        } else {
            old
        }
    };
    Config {
        node_v4: keep(options.v4.is_some(), config.node_v4, there.node_v4),
        node_v6: keep(options.v6.is_some(), config.node_v6, there.node_v6),
        service_ranges: there.service_ranges,
        ..config
    }
}

/// How many entries CONNTRACK gets.
pub(crate) fn flows(wanted: Option<u32>) -> Result<u32, LoaderError> {
    const MEMORY: &str = "/proc/meminfo";
    let bounds = capacity::CONNTRACK_LEAST..=capacity::CONNTRACK_MOST;
    match wanted {
        Some(wanted) if bounds.contains(&wanted) => return Ok(wanted),
        Some(wanted) => {
            return Err(LoaderError::Option {
                option: "entries of CONNTRACK",
                expected: format!("{} to {}", bounds.start(), bounds.end()),
                found: wanted.to_string(),
            });
        }
        None => {}
    }
    let text = fs::read_to_string(MEMORY).map_err(LoaderError::path("read", MEMORY))?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse::<u64>().ok())
        .ok_or_else(|| LoaderError::path("find MemTotal in", MEMORY)(io::ErrorKind::InvalidData.into()))?;
    Ok(flows_for(kib.saturating_mul(1024)))
}

/// How many entries of CONNTRACK for a machine with this much memory, in bytes.
fn flows_for(memory: u64) -> u32 {
    /// This part of the memory: a machine of 16 GiB gets 350 000 entries, which is 175 000 connections.
    const PART: u64 = 256;
    /// Key and value (112 bytes), the kernel's own element (48), and its buckets (16 for each, their number rounded up
    /// to a power of two).
    const ENTRY: u64 = 192;
    u32::try_from(memory / PART / ENTRY)
        .unwrap_or(u32::MAX)
        .clamp(capacity::CONNTRACK_LEAST, capacity::CONNTRACK_MOST)
}

/// How many entries CHOSEN, SOCKET_REVNAT and SOCKET_BACKEND get, each, beside this many of CONNTRACK: one for each connection that it has room for.
/// The three take 336 bytes for a socket, and up to 384 with buckets: no more than the connection's two entries of CONNTRACK, and so
/// together 1/256 of the memory, but for their least size.
pub(crate) fn sockets(flows: u32) -> u32 {
    (flows / 2).clamp(capacity::SOCKETS_LEAST, capacity::SOCKETS_MOST)
}

/// The cookie of the calling thread's network namespace; 0 where the kernel does not tell it (before 5.14).
pub fn namespace_cookie() -> Result<u64, LoaderError> {
    match sys::namespace_cookie() {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            tracing::warn!(
                "this kernel does not tell network namespaces apart (SO_NETNS_COOKIE is of Linux 5.14): node ports do \
                 not answer at loopback, and can be bound by others"
            );
            Ok(0)
        }
        cookie => cookie.map_err(LoaderError::kernel("ask which network namespace this is")),
    }
}

/// With the usual node ports (`--service-node-port-range` of kube-apiserver), where they border on these: of a datagram from a node
/// port's number programs ask whether it is one of the node's own.
fn with_node_ports(local: RangeInclusive<u16>) -> RangeInclusive<u16> {
    const FIRST: u16 = 30_000;
    const AFTER: u16 = 32_768;
    if (FIRST..=AFTER).contains(local.start()) && *local.end() >= AFTER {
        FIRST..=*local.end()
    } else {
        local
    }
}

/// The ports that the kernel gives to sockets that ask for none.
fn local_ports() -> Result<RangeInclusive<u16>, LoaderError> {
    const LOCAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";
    let text = fs::read_to_string(LOCAL).map_err(LoaderError::path("read", LOCAL))?;
    let numbers: Vec<u16> = text
        .split_whitespace()
        .map_while(|number| number.parse().ok())
        .collect();
    match *numbers {
        [first, last] => Ok(first..=last),
        _ => Err(LoaderError::path("understand", LOCAL)(
            io::ErrorKind::InvalidData.into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_follow_the_memory_within_their_bounds() {
        const GIB: u64 = 1 << 30;
        assert_eq!(flows_for(0), capacity::CONNTRACK_LEAST);
        assert_eq!(flows_for(GIB / 2), capacity::CONNTRACK_LEAST);
        assert_eq!(flows_for(16 * GIB), 349_525);
        assert_eq!(flows_for(64 * GIB), 1_398_101);
        assert_eq!(flows_for(u64::MAX), capacity::CONNTRACK_MOST);
        // No more than the part of the memory that is documented.
        assert!(u64::from(flows_for(16 * GIB)) * 192 <= 16 * GIB / 256);
    }

    #[test]
    fn there_is_room_for_the_socket_of_each_connection() {
        const GIB: u64 = 1 << 30;
        for (memory, expected) in [
            (0, 65_536),
            (4 * GIB, 65_536),
            (16 * GIB, 174_762),
            (64 * GIB, 699_050),
            (u64::MAX, capacity::SOCKETS_MOST),
        ] {
            let flows = flows_for(memory);
            assert_eq!(sockets(flows), expected, "{memory} bytes");
            assert!(sockets(flows) >= flows / 2, "{memory} bytes");
        }
        assert!(u64::from(sockets(flows_for(16 * GIB))) * 384 <= 16 * GIB / 256);
    }

    #[test]
    fn a_number_of_flows_out_of_bounds_is_refused() {
        assert_eq!(
            flows(Some(capacity::CONNTRACK_LEAST)).expect("the least"),
            capacity::CONNTRACK_LEAST
        );
        for wrong in [0, capacity::CONNTRACK_LEAST - 1, capacity::CONNTRACK_MOST + 1] {
            let error = flows(Some(wrong)).expect_err("out of bounds").to_string();
            assert!(
                error.contains(&wrong.to_string()) && error.contains("16384 to 8388608"),
                "{error}"
            );
        }
    }

    #[test]
    fn node_ports_come_last_with_those_of_sockets() {
        for (local, last) in [
            (32_768..=60_999, 30_000..=60_999),
            (30_500..=60_999, 30_000..=60_999),
            (1024..=65_535, 1024..=65_535),
            (40_000..=60_999, 40_000..=60_999),
            (31_000..=32_000, 31_000..=32_000),
        ] {
            assert_eq!(with_node_ports(local), last);
        }
    }

    #[test]
    fn ports_are_all_that_are_not_privileged_and_those_of_sockets_are_known() {
        let config = config(&NodeOptions::default()).expect("this machine's");
        assert_eq!((config.snat_first, config.snat_last), (1024, 65_535));
        assert!(
            config.local_first > 0 && config.local_first <= config.local_last,
            "{config:?}"
        );
        let options = NodeOptions {
            snat_ports: Some(50_000..=50_000),
            ..NodeOptions::default()
        };
        let config = super::config(&options).expect("one port is a range");
        assert_eq!((config.snat_first, config.snat_last), (50_000, 50_000));
    }

    #[test]
    fn a_range_of_ports_that_is_none_is_refused() {
        for ports in [0..=10, RangeInclusive::new(20, 10)] {
            let options = NodeOptions {
                snat_ports: Some(ports),
                ..NodeOptions::default()
            };
            let error = config(&options).expect_err("no range").to_string();
            assert!(
                error.starts_with("ports for packets to remote backends: expected"),
                "{error}"
            );
        }
    }
}
