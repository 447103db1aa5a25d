//! A pod: a network namespace behind a veth. Its cgroup is that of the test's process, as cgroups hold processes.

use std::{
    fs::File,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsRawFd as _,
    thread,
};

use futures::TryStreamExt as _;
use nix::sched::{CloneFlags, setns, unshare};
use rtnetlink::{
    Handle, LinkUnspec, LinkVeth, RouteMessageBuilder, packet_route::address::AddressHeaderFlags,
};

use crate::place;

/// Its namespace.
pub(crate) struct Pod(File);

/// The node's end, and the pod's.
const DEVICES: [&str; 2] = ["veth-pod", "eth0"];
/// Addresses of both ends, in the networks of these lengths.
const ENDS: [([IpAddr; 2], u8); 2] = [
    (
        [
            IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1)),
            IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2)),
        ],
        24,
    ),
    (
        [
            IpAddr::V6(Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 1)),
            IpAddr::V6(Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 2)),
        ],
        64,
    ),
];

impl Pod {
    /// The one pod of this network namespace.
    pub(crate) async fn new() -> Self {
        let net = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            File::open("/proc/thread-self/ns/net").expect("opened")
        });
        let pod = Self(net.join().expect("no panic"));
        let (connection, handle, _) = rtnetlink::new_connection().expect("netlink");
        let connection = tokio::spawn(connection);
        let pair = LinkVeth::new(DEVICES[0], DEVICES[1]).build();
        handle.link().add(pair).execute().await.expect("a veth");
        let moved = LinkUnspec::new_with_name(DEVICES[1]).setns_by_fd(pod.0.as_raw_fd());
        handle.link().set(moved.build()).execute().await.expect("moved");
        configure(&handle, 0).await;
        connection.abort();
        let inside = pod.enter();
        let configured = thread::spawn(move || {
            inside();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let (connection, handle, _) = rtnetlink::new_connection().expect("netlink");
                let connection = tokio::spawn(connection);
                configure(&handle, 1).await;
                for ([node, _], _) in ENDS {
                    let add = match node {
                        IpAddr::V4(node) => handle
                            .route()
                            .add(RouteMessageBuilder::<Ipv4Addr>::new().gateway(node).build()),
                        IpAddr::V6(node) => handle
                            .route()
                            .add(RouteMessageBuilder::<Ipv6Addr>::new().gateway(node).build()),
                    };
                    add.execute().await.expect("a default route");
                }
                connection.abort();
            });
        });
        configured.join().expect("the pod's network is configured");
        pod
    }

    /// Moves the thread that calls it in.
    pub(crate) fn enter(&self) -> impl FnOnce() + Send + 'static {
        let net = self.0.try_clone().expect("a descriptor");
        move || setns(net, CloneFlags::CLONE_NEWNET).expect("entered")
    }
}

/// Gives one end its addresses, and brings it up.
async fn configure(handle: &Handle, end: usize) {
    let up = LinkUnspec::new_with_name(DEVICES[end]).up().build();
    handle.link().set(up).execute().await.expect("it comes up");
    let mut links = handle.link().get().match_name(DEVICES[end].to_owned()).execute();
    let link = links.try_next().await.expect("a list").expect("the device");
    for (addresses, length) in ENDS {
        let mut add = handle.address().add(link.header.index, addresses[end], length);
        // Usable at once: no other host has it.
        add.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        add.execute().await.expect("an address");
    }
    place::usable(&ENDS.map(|(addresses, _)| addresses[end]));
}
