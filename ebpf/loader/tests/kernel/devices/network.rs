//! Network namespaces with veth pairs between them and the test's own.
//!
//! ```text
//! client 192.0.2.2 ── uplink 192.0.2.1 ─ node ─ pod 10.1.0.1 ────── pod 10.1.0.2
//!                                          └─── far 198.51.100.1 ── remote 198.51.100.2
//! ```
//!
//! The same with 2001:db8:1::, fd00:1:: and 2001:db8:2::.

use std::{
    fs::{self, File},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsRawFd as _,
    sync::mpsc::{self, Sender},
    thread,
};

use nix::sched::{CloneFlags, unshare};
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};
use tokio::runtime;

/// What a namespace is told before there are devices in it.
const SETTINGS: [(&str, &str); 7] = [
    ("ipv4/ip_forward", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/all/forwarding", "1"),
    // Addresses are usable at once.
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
];

/// A network namespace, with a thread in it that does what it is asked to; both end with the value.
pub(super) struct Namespace {
    jobs: Sender<Box<dyn FnOnce() + Send>>,
}

impl Namespace {
    fn new() -> Self {
        let (jobs, asked) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            asked.iter().for_each(|job| job());
        });
        let namespace = Self { jobs };
        namespace.run(settle);
        namespace
    }

    /// Does something in the namespace; threads that it starts are in it too.
    pub(super) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, answered) = mpsc::channel();
        let job = move || answer.send(job()).expect("somebody waits");
        self.jobs.send(Box::new(job)).expect("the thread is there");
        answered.recv().expect("it was done without a panic")
    }
}

/// One family's addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    pub(super) node: IpAddr,
    pub(super) client: IpAddr,
    pub(super) pod: IpAddr,
    pub(super) remote: IpAddr,
    /// Of services alone; no device has it.
    pub(super) vip: IpAddr,
    /// The node's, at the pod's device and at the one to the remote node.
    gateways: [IpAddr; 2],
    /// Bits of the networks.
    prefix: u8,
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(first: u16, second: u16, third: u16, last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, last))
}

pub(super) const FAMILIES: [Family; 2] = [
    Family {
        node: v4(192, 0, 2, 1),
        client: v4(192, 0, 2, 2),
        pod: v4(10, 1, 0, 2),
        remote: v4(198, 51, 100, 2),
        vip: v4(203, 0, 113, 9),
        gateways: [v4(10, 1, 0, 1), v4(198, 51, 100, 1)],
        prefix: 24,
    },
    Family {
        node: v6(0x2001, 0xdb8, 1, 1),
        client: v6(0x2001, 0xdb8, 1, 2),
        pod: v6(0xfd00, 1, 0, 2),
        remote: v6(0x2001, 0xdb8, 2, 2),
        vip: v6(0x2001, 0xdb8, 3, 9),
        gateways: [v6(0xfd00, 1, 0, 1), v6(0x2001, 0xdb8, 2, 1)],
        prefix: 64,
    },
];

/// The namespaces around the test's own.
pub(super) struct Network {
    pub(super) client: Namespace,
    pub(super) pod: Namespace,
    pub(super) remote: Namespace,
}

/// The node's devices.
pub(super) const UPLINK: &str = "uplink";
pub(super) const POD: &str = "pod";
pub(super) const FAR: &str = "far";

impl Network {
    /// Makes everything, around the calling thread's namespace.
    pub(super) fn new() -> Self {
        settle();
        let network = Self {
            client: Namespace::new(),
            pod: Namespace::new(),
            remote: Namespace::new(),
        };
        let [to_pod, to_remote] = [0, 1].map(|at| FAMILIES.map(|family| family.gateways[at]));
        let node = FAMILIES.map(|family| family.node);
        network.connect(
            UPLINK,
            node,
            &network.client,
            FAMILIES.map(|family| family.client),
        );
        network.connect(POD, to_pod, &network.pod, FAMILIES.map(|family| family.pod));
        network.connect(
            FAR,
            to_remote,
            &network.remote,
            FAMILIES.map(|family| family.remote),
        );
        network
    }

    /// Has the node send what is for nobody that it knows to the client, as to its router.
    pub(super) fn routes_all_to_the_client() {
        for family in FAMILIES {
            netlink(async move |handle| default_route(&handle, family.client).await);
        }
    }

    /// A veth pair; what is at the other end sends everything here.
    fn connect(&self, device: &'static str, here: [IpAddr; 2], other: &Namespace, there: [IpAddr; 2]) {
        let namespace = other.run(|| File::open("/proc/thread-self/ns/net").expect("its namespace"));
        netlink(async move |handle| {
            add_veth(&handle, device, None).await;
            let moved = LinkUnspec::new_with_name(&peer(device))
                .setns_by_fd(namespace.as_raw_fd())
                .build();
            handle.link().set(moved).execute().await.expect("moved");
            address(&handle, device, here).await;
        });
        other.run(move || {
            netlink(async move |handle| {
                address(&handle, &peer(device), there).await;
                for gateway in here {
                    default_route(&handle, gateway).await;
                }
            });
        });
    }
}

async fn default_route(handle: &Handle, gateway: IpAddr) {
    let route = match gateway {
        IpAddr::V4(gateway) => RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).build(),
        IpAddr::V6(gateway) => RouteMessageBuilder::<Ipv6Addr>::new().gateway(gateway).build(),
    };
    let added = handle.route().add(route).execute().await;
    added.expect("a default route");
}

/// The other end of a device.
fn peer(device: &str) -> String {
    format!("{device}-peer")
}

/// A veth pair without addresses, both ends here; the first with this index, if there is one given.
pub(super) fn pair(device: &'static str, index: Option<u32>) {
    netlink(async move |handle| add_veth(&handle, device, index).await);
}

/// Removes a veth pair.
pub(super) fn remove(device: &'static str) {
    let index = index(device);
    netlink(async move |handle| handle.link().del(index).execute().await.expect("removed"));
}

/// The index of a device of the calling thread's namespace.
pub(super) fn index(device: &str) -> u32 {
    nix::net::if_::if_nametoindex(device).expect("the device is there")
}

/// Loopback and settings of the calling thread's namespace.
fn settle() {
    for (setting, value) in SETTINGS {
        fs::write(format!("/proc/sys/net/{setting}"), value).expect("a setting of the namespace");
    }
    netlink(async |handle| up(&handle, "lo").await);
}

/// Does something by rtnetlink in the calling thread's namespace.
pub(super) fn netlink<T>(work: impl AsyncFnOnce(Handle) -> T) -> T {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().expect("netlink");
        let connection = tokio::spawn(connection);
        let done = work(handle).await;
        connection.abort();
        done
    })
}

async fn add_veth(handle: &Handle, device: &str, index: Option<u32>) {
    let mut veth = LinkVeth::new(device, &peer(device));
    if let Some(index) = index {
        veth = veth.index(index);
    }
    handle
        .link()
        .add(veth.build())
        .execute()
        .await
        .expect("a veth pair");
    up(handle, device).await;
}

async fn up(handle: &Handle, device: &str) {
    let up = LinkUnspec::new_with_name(device).up().build();
    handle.link().set(up).execute().await.expect("the device up");
}

/// Brings a device up with an address of each family.
async fn address(handle: &Handle, device: &str, addresses: [IpAddr; 2]) {
    up(handle, device).await;
    for (address, family) in addresses.into_iter().zip(FAMILIES) {
        let add = handle.address().add(index(device), address, family.prefix);
        add.execute().await.expect("an address");
    }
}
