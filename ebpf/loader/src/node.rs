//! What follows from the options and from the machine: CONFIG, and the size of FLOWS.

use std::{fs, io, ops::RangeInclusive};

use lb_abi::{Address, Config, capacity};

use crate::{LoaderError, NodeOptions, cgroup::Cgroup, sys};

/// What the programs are told.
pub(crate) fn config(options: &NodeOptions) -> Result<Config, LoaderError> {
    let own_cgroup = match &options.own_cgroup {
        Some(path) => Cgroup::open(path)?.id(),
        None => 0,
    };
    let ports = match &options.snat_ports {
        Some(ports) if ports.is_empty() || *ports.start() == 0 => {
            return Err(LoaderError::Option {
                option: "ports for packets to remote backends",
                expected: "first and last port, from 1 on, the last not below the first".to_owned(),
                found: format!("{}–{}", ports.start(), ports.end()),
            });
        }
        Some(ports) => ports.clone(),
        None => free_ports()?,
    };
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
        rejects_per_second: options.rejects_per_second,
    })
}

/// With the addresses of the CONFIG that is there, where the options give none.
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
        ..config
    }
}

/// How many entries FLOWS gets.
pub(crate) fn flows(wanted: Option<u32>) -> Result<u32, LoaderError> {
    const MEMORY: &str = "/proc/meminfo";
    let bounds = capacity::FLOWS_LEAST..=capacity::FLOWS_MOST;
    match wanted {
        Some(wanted) if bounds.contains(&wanted) => return Ok(wanted),
        Some(wanted) => {
            return Err(LoaderError::Option {
                option: "entries of FLOWS",
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

/// How many entries of FLOWS for a machine with this much memory, in bytes.
fn flows_for(memory: u64) -> u32 {
    /// This part of the memory: a machine of 16 GiB gets 350 000 entries, which is 175 000 connections.
    const PART: u64 = 256;
    /// Key and value (112 bytes), the kernel's own element (48), and its buckets (16 for each, their number rounded up
    /// to a power of two).
    const ENTRY: u64 = 192;
    u32::try_from(memory / PART / ENTRY)
        .unwrap_or(u32::MAX)
        .clamp(capacity::FLOWS_LEAST, capacity::FLOWS_MOST)
}

/// The cookie of the calling thread's network namespace; 0 where the kernel does not tell it (before 5.14).
pub(crate) fn namespace_cookie() -> Result<u64, LoaderError> {
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

fn free_ports() -> Result<RangeInclusive<u16>, LoaderError> {
    const LOCAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";
    const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";
    let read = |path: &'static str| fs::read_to_string(path).map_err(LoaderError::path("read", path));
    let wrong = |path| LoaderError::path("understand", path)(io::ErrorKind::InvalidData.into());
    let mut numbers = read(LOCAL)?
        .split_whitespace()
        .map(str::parse)
        .collect::<Vec<_>>()
        .into_iter();
    let (Some(Ok(first)), Some(Ok(last))) = (numbers.next(), numbers.next()) else {
        return Err(wrong(LOCAL));
    };
    let reserved = ranges(&read(RESERVED)?).ok_or_else(|| wrong(RESERVED))?;
    let local = first..=last;
    longest_free(&NodeOptions::SNAT_PORTS, &local, &reserved).ok_or(LoaderError::Ports {
        wanted: NodeOptions::SNAT_PORTS,
        local,
    })
}

/// `1000,2000-3000`, as the kernel writes them.
fn ranges(text: &str) -> Option<Vec<RangeInclusive<u16>>> {
    text.trim()
        .split(',')
        .filter(|range| !range.is_empty())
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        .collect()
}

/// The longest run of ports that the kernel gives to no socket by itself: outside its range, or reserved in it.
fn longest_free(
    wanted: &RangeInclusive<u16>,
    local: &RangeInclusive<u16>,
    reserved: &[RangeInclusive<u16>],
) -> Option<RangeInclusive<u16>> {
    let free = |port: &u16| !local.contains(port) || reserved.iter().any(|range| range.contains(port));
    let mut longest: Option<RangeInclusive<u16>> = None;
    let mut current: Option<RangeInclusive<u16>> = None;
    for port in wanted.clone() {
        current = free(&port).then(|| *current.as_ref().map_or(&port, RangeInclusive::start)..=port);
        if let Some(run) = &current
            && longest.as_ref().is_none_or(|longest| run.len() > longest.len())
        {
            longest = Some(run.clone());
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_follow_the_memory_within_their_bounds() {
        const GIB: u64 = 1 << 30;
        assert_eq!(flows_for(0), capacity::FLOWS_LEAST);
        assert_eq!(flows_for(GIB / 2), capacity::FLOWS_LEAST);
        assert_eq!(flows_for(16 * GIB), 349_525);
        assert_eq!(flows_for(64 * GIB), 1_398_101);
        assert_eq!(flows_for(u64::MAX), capacity::FLOWS_MOST);
        // No more than the part of the memory that is documented.
        assert!(u64::from(flows_for(16 * GIB)) * 192 <= 16 * GIB / 256);
    }

    #[test]
    fn a_number_of_flows_out_of_bounds_is_refused() {
        assert_eq!(
            flows(Some(capacity::FLOWS_LEAST)).expect("the least"),
            capacity::FLOWS_LEAST
        );
        for wrong in [0, capacity::FLOWS_LEAST - 1, capacity::FLOWS_MOST + 1] {
            let error = flows(Some(wrong)).expect_err("out of bounds").to_string();
            assert!(
                error.contains(&wrong.to_string()) && error.contains("16384 to 8388608"),
                "{error}"
            );
        }
    }

    #[track_caller]
    fn check(local: RangeInclusive<u16>, reserved: &str, expected: Option<&RangeInclusive<u16>>) {
        let reserved = ranges(reserved).expect("as the kernel writes them");
        assert_eq!(
            longest_free(&NodeOptions::SNAT_PORTS, &local, &reserved).as_ref(),
            expected
        );
    }

    #[test]
    fn ports_are_those_that_no_local_socket_is_given() {
        check(32_768..=60_999, "", Some(&(61_000..=65_535)));
        check(1024..=65_000, "\n", Some(&(65_001..=65_535)));
        check(61_000..=65_534, "", Some(&(65_535..=65_535)));
        check(62_000..=63_000, "", Some(&(63_001..=65_535)));
        check(64_000..=65_535, "", Some(&(61_000..=63_999)));
        check(1024..=65_535, "", None);
        check(
            1024..=65_535,
            "8080,62000-62999,65535\n",
            Some(&(62_000..=62_999)),
        );
    }

    #[test]
    fn reserved_ports_that_make_no_sense_are_not_understood() {
        assert_eq!(ranges("1-2-3"), None);
        assert_eq!(ranges("70000"), None);
        assert_eq!(ranges("5,7-9\n"), Some(vec![5..=5, 7..=9]));
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
