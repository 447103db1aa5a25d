//! Checks the requirements of a lab on this host before anything is created.
//!
//! Each missing requirement is a [`LabError`] of its own with its remedy. Addresses that the host uses too are no
//! error: the lab's exist only in the lab's namespaces.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
};

use ipnet::IpNet;
use nix::{sys::utsname::uname, unistd::Uid};

use super::{
    IpFamilies, LIMITS, LabError, cgroup,
    error::io_error,
    links::Links,
    topology::{NodeAddresses, on_underlay},
};

/// The oldest supported kernel: `cgroup.kill` needs 5.14, and agents' programs need 5.15.
const OLDEST_KERNEL: (u32, u32) = (5, 15);

/// Capabilities that the lab uses, by their bits in linux/capability.h.
const CAPABILITIES: [(u32, &str); 2] = [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")];

/// Whether this process is root.
///
/// # Errors
/// [`LabError::NotRoot`].
pub(super) fn root() -> Result<(), LabError> {
    let uid = Uid::effective();
    if uid.is_root() {
        Ok(())
    } else {
        Err(LabError::NotRoot { uid: uid.as_raw() })
    }
}

/// Checks all requirements, and returns the mount point of the cgroup v2 hierarchy.
///
/// # Errors
/// The first missing requirement.
pub(super) fn check(families: IpFamilies) -> Result<PathBuf, LabError> {
    root()?;
    let read = |path: &str| fs::read_to_string(path).map_err(io_error(format!("read {path}")));
    initial_user_namespace(&read("/proc/self/uid_map")?)?;
    capable(&read("/proc/self/status")?)?;
    let release = uname().map_err(|errno| io_error("ask for the kernel's release")(errno.into()))?;
    new_enough(&release.release().to_string_lossy())?;
    let hierarchy = cgroup::hierarchy()?;
    has_bpf_file_system(&read("/proc/filesystems")?)?;
    if families.has_ipv6() && !Path::new("/proc/sys/net/ipv6").exists() {
        return Err(LabError::NoIpv6);
    }
    loopback().map_err(|error| LabError::NoLoopback { error })?;
    Ok(hierarchy)
}

/// Connects to a listening socket: on a loopback that is down it can be created, but not reached.
fn loopback() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    TcpStream::connect_timeout(&listener.local_addr()?, LIMITS.front_connect).map(drop)
}

/// Root of a user namespace has no rights on the host's cgroups, `/run` and `/proc/sys`.
fn initial_user_namespace(uid_map: &str) -> Result<(), LabError> {
    // user_namespaces(7): the initial one maps all ids to themselves.
    let all: Vec<&str> = uid_map.split_whitespace().collect();
    if all == ["0", "0", "4294967295"] {
        Ok(())
    } else {
        Err(LabError::UserNamespace)
    }
}

fn capable(status: &str) -> Result<(), LabError> {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    // proc(5) has had the line since 2.6.25.
    let effective = effective.unwrap_or_default();
    let lacks = |bit: &u32| effective & (1 << bit) == 0;
    let missing: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(bit, _)| lacks(bit))
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(LabError::Capabilities {
            missing: missing.join(" and "),
        })
    }
}

fn new_enough(release: &str) -> Result<(), LabError> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    // A release that is no version number passes.
    match (number(), number()) {
        (Some(major), Some(minor)) if (major, minor) < OLDEST_KERNEL => Err(LabError::OldKernel {
            found: release.to_owned(),
            oldest: OLDEST_KERNEL,
        }),
        _ => Ok(()),
    }
}

fn has_bpf_file_system(filesystems: &str) -> Result<(), LabError> {
    let known = |line: &str| line.split_whitespace().last() == Some("bpf");
    if filesystems.lines().any(known) {
        Ok(())
    } else {
        Err(LabError::NoBpffs)
    }
}

/// Address ranges of a lab that this host uses as well, each with the host's network; one line each.
///
/// # Errors
/// The host's routes can't be read.
pub(super) async fn also_used(nodes: u8, families: IpFamilies, lab: &str) -> Result<Vec<String>, LabError> {
    let host = Links::here()?.destinations().await?;
    let pods = (1..=nodes).flat_map(|number| NodeAddresses::new(number, families).pod_networks());
    let ranges = named(
        "nodes",
        families
            .gateway()
            .into_iter()
            .map(|gateway| on_underlay(gateway).trunc()),
    )
    .chain(named("pods", pods))
    .chain(named("ClusterIPs", families.services()))
    .chain(named("load balancers", families.load_balancers()));
    let both = ranges.filter_map(|(what, range)| Some((what, range, overlapping(range, &host)?)));
    Ok(both
        .map(|(what, range, taken)| {
            format!(
                "note: this host uses {taken}, and the lab {range} for {what}. They don't meet, as the lab's addresses are \
                 in its namespaces alone; to reach them: plumbline lab exec --name {lab} outside -- COMMAND"
            )
        })
        .collect())
}

fn named(
    what: &'static str,
    ranges: impl IntoIterator<Item = IpNet>,
) -> impl Iterator<Item = (&'static str, IpNet)> {
    ranges.into_iter().map(move |range| (what, range))
}

/// The widest of the host's networks that overlaps with a range; default routes don't count.
fn overlapping(range: IpNet, host: &[IpNet]) -> Option<IpNet> {
    let shares =
        |network: &&IpNet| network.prefix_len() > 0 && (network.contains(&range) || range.contains(*network));
    host.iter()
        .filter(shares)
        .min_by_key(|network| network.prefix_len())
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T: std::fmt::Debug>(result: Result<T, LabError>) -> String {
        result.expect_err("something is missing").to_string()
    }

    #[test]
    fn a_kernel_is_too_old_by_its_numbers_alone() {
        for release in [
            "5.15.0",
            "5.15.0-91-generic",
            "6.1.0-18-amd64",
            "6.18.44",
            "10.0",
            "mainline",
        ] {
            new_enough(release).expect(release);
        }
        for release in ["5.14.0-427.el9.x86_64", "4.18.0", "2.6.78", "5.4"] {
            let message = message(new_enough(release));
            assert!(
                message.contains(release) && message.contains("expected 5.15 or newer"),
                "{message}"
            );
        }
    }

    #[test]
    fn missing_capabilities_are_named() {
        capable("Name:\tx\nCapEff:\t000001ffffffffff\n").expect("all");
        let message = message(capable("CapEff:\t00000000a80425fb\n"));
        assert!(message.contains("CAP_NET_ADMIN and CAP_SYS_ADMIN"), "{message}");
        assert!(message.contains("--privileged"), "{message}");
    }

    #[test]
    fn root_of_a_user_namespace_is_told_apart() {
        initial_user_namespace("         0          0 4294967295\n").expect("the initial one");
        let message = message(initial_user_namespace("         0       1000          1\n"));
        assert!(
            message.contains("user namespace") && message.contains("sudo"),
            "{message}"
        );
    }

    #[test]
    fn a_kernel_without_a_bpf_file_system_is_named() {
        has_bpf_file_system("nodev\tsysfs\nnodev\tbpf\n\text4\n").expect("there is one");
        let message = message(has_bpf_file_system("nodev\tsysfs\nnodev\tbpfx\n\text4\n"));
        assert!(message.contains("CONFIG_BPF_SYSCALL"), "{message}");
    }

    #[test]
    fn networks_overlap_in_either_direction_and_default_routes_with_none() {
        let net = |text: &str| text.parse::<IpNet>().expect("a network");
        let host = ["0.0.0.0/0", "::/0", "10.0.0.0/8", "10.96.0.7/32", "172.30.0.5/32"].map(net);
        assert_eq!(overlapping(net("10.96.0.0/16"), &host), Some(net("10.0.0.0/8")));
        assert_eq!(
            overlapping(net("172.30.0.0/24"), &host),
            Some(net("172.30.0.5/32"))
        );
        assert_eq!(overlapping(net("172.30.1.0/24"), &host), None);
        assert_eq!(overlapping(net("fd00:96::/112"), &host), None);
    }
}
