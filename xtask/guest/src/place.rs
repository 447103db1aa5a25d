//! The environment of the programs: file systems, and kernel modules.

use std::{
    fs::{self, File},
    io,
};

use anyhow::{Context as _, bail};
use nix::{
    errno::Errno,
    kmod::{ModuleInitFlags, finit_module},
    libc,
    mount::{MsFlags, mount},
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
    },
};

/// Type and mount point of each file system, parents first.
const FILE_SYSTEMS: [(&str, &str); 7] = [
    ("devtmpfs", "/dev"),
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("bpf", "/sys/fs/bpf"),
    ("tmpfs", "/run"),
    ("tmpfs", "/tmp"),
];

/// Mounts all of them.
pub(crate) fn mount_all() -> anyhow::Result<()> {
    for (kind, place) in FILE_SYSTEMS {
        match fs::create_dir(place) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("failed to make {place}"));
            }
            _ => {}
        }
        mount(Some(kind), place, Some(kind), MsFlags::empty(), None::<&str>)
            .with_context(|| format!("failed to mount {kind} at {place}"))?;
    }
    Ok(())
}

/// Sets the loopback device up: it is the first device of a network namespace, and down (`rtnetlink(7)`).
pub(crate) fn loopback_up() -> anyhow::Result<()> {
    /// `sizeof(struct nlmsghdr)` and `sizeof(struct ifinfomsg)`.
    const LENGTH: u32 = 16 + 16;
    /// `NLM_F_REQUEST` and `NLM_F_ACK`.
    const FLAGS: u16 = 1 | 4;
    const INDEX: u32 = 1;
    let up = libc::IFF_UP.cast_unsigned();
    let mut message = Vec::new();
    message.extend(LENGTH.to_ne_bytes());
    message.extend(libc::RTM_NEWLINK.to_ne_bytes());
    message.extend(FLAGS.to_ne_bytes());
    // Sequence, port; family, device type; device index; flags and mask.
    for word in [1, 0, 0, INDEX, up, up] {
        message.extend(word.to_ne_bytes());
    }
    let route = SockProtocol::NetlinkRoute;
    let link = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        route,
    )
    .context("failed to open a netlink socket")?;
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&link);
    sendto(descriptor, &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())
        .context("failed to send to the kernel")?;
    let mut answer = [0_u8; 256];
    let length = recv(descriptor, &mut answer, MsgFlags::empty()).context("the kernel does not answer")?;
    match answer[..length].get(16..20) {
        Some([0, 0, 0, 0]) => Ok(()),
        other => bail!("the kernel did not bring the loopback device up: {other:?}"),
    }
}

/// Loads a module.
pub(crate) fn load(module: &str) -> anyhow::Result<()> {
    let file = File::open(module)?;
    match finit_module(&file, c"", ModuleInitFlags::empty()) {
        // Another module has loaded it as a dependency.
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
