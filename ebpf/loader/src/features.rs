//! What this kernel offers of what the datapath can use, tried out: no version number tells, as distributions carry
//! features back and leave options out.

use std::{
    collections::HashSet,
    fs::File,
    io,
    net::{Ipv4Addr, UdpSocket},
    os::fd::AsFd as _,
    path::Path,
    thread,
};

use nix::sched::{CloneFlags, unshare};

use crate::{
    Direction, Hook, LoaderError, environment, ipv6only,
    sys::{
        self, cgroup,
        clsact::{self, Place},
        netlink::{self, Family, Message, Netlink},
        program::{self, Kind, set_retval_is_offered},
        tcx,
    },
    terminate_udp,
};

/// The loopback device of every network namespace.
const LOOPBACK: u32 = 1;

/// `RTM_NEWLINK`.
const NEW_LINK: u16 = 16;

/// Something that a kernel offers or not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature {
    /// What it is called.
    pub name: String,
    /// Whether this kernel offers it.
    pub offered: bool,
}

/// Tries each of them, in network namespaces of their own and for a moment at a cgroup. Nothing stays, and packets and
/// sockets of others are let through.
///
/// # Errors
/// Privileges; or the kernel refuses something for another reason than that it does not have it.
pub fn features(cgroup: &Path) -> Result<Vec<Feature>, LoaderError> {
    environment::expect_privileges()?;
    let mut features = Vec::new();
    let mut add = |name: &str, offered: Result<bool, LoaderError>| {
        offered.map(|offered| {
            features.push(Feature {
                name: name.to_owned(),
                offered,
            });
        })
    };
    let cookie = offered(sys::namespace_cookie().map(drop), &[libc::ENOPROTOOPT]);
    add("SO_NETNS_COOKIE", cookie)?;
    let folder = File::open(cgroup).map_err(LoaderError::path("open", cgroup))?;
    let mut hooks = true;
    for hook in Hook::ALL {
        hooks &= at_cgroup(hook, &folder)?;
    }
    add("links at all socket hooks", Ok(hooks))?;
    let retval = set_retval_is_offered(Hook::Connect4.attach_type());
    add("bpf_set_retval", retval.map_err(LoaderError::kernel(TRY)))?;
    add("IPV6_V6ONLY at bind", ipv6only::bit().map(|bit| bit.mask != 0))?;
    add("UDP sockets ended", inside(udp_sockets_end))?;
    add("filters of clsact", inside(filters))?;
    add("TCX", inside(tcx))?;
    add("netkit", inside(netkit))?;
    let call = program::helper_is_offered(Kind::Packet, 0, BPF_LOOP);
    add("bpf_loop", call.map_err(LoaderError::kernel(TRY)))?;
    Ok(features)
}

/// What failed, in errors.
const TRY: &str = "find out what it offers";

/// `BPF_FUNC_loop`: in no program of ours, and asked for to know from when on it could be.
const BPF_LOOP: i32 = 181;

/// The kernel's answer, where some refusals mean that it does not have what was asked for.
fn offered(answer: io::Result<()>, refusals: &[i32]) -> Result<bool, LoaderError> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if netlink::errno(&error).is_some_and(|number| refusals.contains(&number)) => Ok(false),
        Err(error) => Err(LoaderError::kernel(TRY)(error)),
    }
}

/// Whether it takes programs of a hook, and attaches them by links.
fn at_cgroup(hook: Hook, folder: &File) -> Result<bool, LoaderError> {
    let kind = match hook {
        Hook::PostBind4 | Hook::PostBind6 | Hook::SockRelease => Kind::Socket,
        _ => Kind::SocketAddress,
    };
    let attach_type = hook.attach_type();
    let attached = program::passing(kind, attach_type)
        .and_then(|program| cgroup::link_create(folder.as_fd(), program.as_fd(), attach_type).map(drop));
    offered(attached, &[libc::EINVAL])
}

/// Does something on a thread of its own in a new network namespace, whose loopback device is up.
fn inside(work: fn(&mut Netlink) -> Result<bool, LoaderError>) -> Result<bool, LoaderError> {
    let within = || {
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|error| LoaderError::kernel("make a network namespace")(error.into()))?;
        let failed = || LoaderError::kernel("bring the loopback device up");
        let mut netlink = Netlink::open(Family::Route).map_err(failed())?;
        let up = libc::IFF_UP.cast_unsigned();
        let device = [0, LOOPBACK, up, up].map(u32::to_ne_bytes).concat();
        netlink
            .request(&Message::new(NEW_LINK, 0, &device))
            .map_err(failed())?;
        work(&mut netlink)
    };
    thread::scope(|scope| match scope.spawn(within).join() {
        Ok(result) => result,
        Err(panicked) => std::panic::resume_unwind(panicked),
    })
}

/// A connected socket is ended, and its owner told.
fn udp_sockets_end(_: &mut Netlink) -> Result<bool, LoaderError> {
    /// Where the calling thread is.
    const NAMESPACE: &str = "/proc/thread-self/ns/net";
    let failed = || LoaderError::kernel("connect a UDP socket on the loopback device");
    let socket = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let (client, server) = (socket().map_err(failed())?, socket().map_err(failed())?);
    let backend = server.local_addr().map_err(failed())?;
    client.connect(backend).map_err(failed())?;
    let cookie = sys::socket_cookie(client.as_fd()).map_err(failed())?;
    let namespace = File::open(NAMESPACE).map_err(LoaderError::path("open", NAMESPACE))?;
    match terminate_udp(namespace.as_fd(), backend, &HashSet::from([cookie])) {
        Ok(done) => Ok(done.ended == 1 && client.peer_addr().is_err()),
        Err(LoaderError::Unsupported { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A program becomes a filter.
fn filters(netlink: &mut Netlink) -> Result<bool, LoaderError> {
    let program = program::passing(Kind::Packet, 0).map_err(LoaderError::kernel(TRY))?;
    let place = Place::New {
        parent: Direction::Ingress.parent(),
        priority: 1,
    };
    let put = clsact::add_clsact(netlink, LOOPBACK)
        .and_then(|_| clsact::put(netlink, LOOPBACK, place, program.as_fd(), "passing"));
    // Of a kind of discipline or filter that it does not know.
    offered(put, &[libc::ENOENT, libc::EOPNOTSUPP])
}

/// A program is linked to a device.
fn tcx(_: &mut Netlink) -> Result<bool, LoaderError> {
    let program = program::passing(Kind::Packet, 0).map_err(LoaderError::kernel(TRY))?;
    let linked = tcx::create(LOOPBACK, program.as_fd(), tcx::INGRESS, true);
    offered(linked.map(drop), &[libc::EINVAL])
}

/// A pair of devices comes to be.
fn netkit(netlink: &mut Netlink) -> Result<bool, LoaderError> {
    /// `IFLA_LINKINFO` and `IFLA_INFO_KIND`.
    const LINK_INFO: u16 = 18;
    const KIND: u16 = 1;
    let flags = netlink::CREATE | netlink::EXCLUSIVE;
    let mut made = || {
        let mut kind = Vec::new();
        netlink::push_attribute(&mut kind, KIND, b"netkit\0")?;
        let mut message = Message::new(NEW_LINK, flags, &[0; 16]);
        message.attribute(LINK_INFO, &kind)?;
        netlink.request(&message)
    };
    offered(made(), &[libc::EOPNOTSUPP])
}
