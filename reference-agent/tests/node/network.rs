//! Network namespaces with veth pairs between them and the node's.

use std::{
    fs::{self, File},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsRawFd as _,
    sync::mpsc::{self, Sender},
    thread,
};

use futures::TryStreamExt as _;
use nix::sched::{CloneFlags, unshare};
use rtnetlink::{
    Handle, LinkUnspec, LinkVeth, RouteMessageBuilder,
    packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol},
};
use tokio::runtime;

use crate::place::usable;

/// What a namespace is told before there are devices in it.
const SETTINGS: [(&str, &str); 7] = [
    ("ipv4/ip_forward", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/all/forwarding", "1"),
    // No duplicate address detection.
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
];

/// A network namespace, with a thread in it that does what it is asked to; both end with the value.
pub(crate) struct Namespace {
    jobs: Sender<Box<dyn FnOnce() + Send>>,
}

impl Namespace {
    pub(crate) fn new() -> Self {
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
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, answered) = mpsc::channel();
        let job = move || {
            // Who asked may have panicked since.
            let _ = answer.send(job());
        };
        self.jobs.send(Box::new(job)).expect("the thread is there");
        answered.recv().expect("it was done without a panic")
    }
}

/// One family's addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family {
    pub(crate) node: IpAddr,
    pub(crate) client: IpAddr,
    /// Another client outside.
    pub(crate) other: IpAddr,
    pub(crate) pods: [IpAddr; 2],
    /// The node's, at every pod's device.
    pub(crate) gateway: IpAddr,
    pub(crate) remote: IpAddr,
    /// Bits of the network that node and clients share.
    prefix: u8,
    /// Bits of one address.
    pub(crate) host: u8,
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(first: u16, second: u16, third: u16, last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, last))
}

pub(crate) const FAMILIES: [Family; 2] = [
    Family {
        node: v4(192, 0, 2, 1),
        client: v4(192, 0, 2, 2),
        other: v4(192, 0, 2, 9),
        pods: [v4(10, 244, 1, 2), v4(10, 244, 1, 3)],
        gateway: v4(10, 244, 1, 1),
        remote: v4(10, 244, 2, 2),
        prefix: 24,
        host: 32,
    },
    Family {
        node: v6(0x2001, 0xdb8, 1, 1),
        client: v6(0x2001, 0xdb8, 1, 2),
        other: v6(0x2001, 0xdb8, 1, 9),
        pods: [v6(0xfd00, 1, 0, 2), v6(0xfd00, 1, 0, 3)],
        gateway: v6(0xfd00, 1, 0, 1),
        remote: v6(0xfd00, 2, 0, 2),
        prefix: 64,
        host: 128,
    },
];

/// The namespaces around the node's, which is the caller's.
pub(crate) struct Network {
    pub(crate) outside: Namespace,
}

/// The node's device to the network.
pub(crate) const UPLINK: &str = "eth0";

impl Network {
    /// The node with its uplink; pods come later.
    pub(crate) fn new() -> Self {
        settle();
        let outside = Namespace::new();
        let node = FAMILIES.map(|family| (family.node, family.prefix));
        let client = FAMILIES.map(|family| (family.client, family.prefix));
        connect(UPLINK, &node, &outside, &client);
        let routes = FAMILIES.map(|family| (family.remote, family.host, family.client));
        netlink(async move |handle| {
            for (_, _, gateway) in routes {
                route(&handle, None, Via::Gateway(gateway)).await;
            }
        });
        outside.run(|| {
            netlink(async |handle| {
                for family in FAMILIES {
                    for (address, device) in [(family.other, "eth0"), (family.remote, "lo")] {
                        add_address(&handle, device, (address, family.host)).await;
                    }
                    route(&handle, None, Via::Gateway(family.node)).await;
                }
            });
        });
        Self { outside }
    }
}

/// The namespace of one pod, wired as CNI's ptp does.
pub(crate) fn pod(number: usize) -> Namespace {
    let namespace = Namespace::new();
    let device = device(number);
    let gateways = FAMILIES.map(|family| (family.gateway, family.host));
    let addresses = FAMILIES.map(|family| (family.pods[number], family.host));
    connect(device, &gateways, &namespace, &addresses);
    netlink(async move |handle| {
        for (address, length) in addresses {
            route(&handle, Some((address, length)), Via::Device(device)).await;
        }
    });
    namespace.run(move || {
        netlink(async move |handle| {
            for (gateway, length) in gateways {
                route(&handle, Some((gateway, length)), Via::Device("eth0")).await;
                route(&handle, None, Via::Gateway(gateway)).await;
            }
        });
    });
    namespace
}

/// The node's end of a pod's pair.
pub(crate) fn device(pod: usize) -> &'static str {
    ["veth1-2", "veth1-3"][pod]
}

/// Removes a device of the calling thread's namespace.
pub(crate) fn remove(device: &'static str) {
    netlink(async move |handle| {
        let index = index(device);
        handle.link().del(index).execute().await.expect("removed");
    });
}

/// Gives a device of the calling thread's namespace an address.
pub(crate) fn address(device: &'static str, address: IpAddr) {
    let length = if address.is_ipv4() { 32 } else { 128 };
    netlink(async move |handle| add_address(&handle, device, (address, length)).await);
}

/// The index of a device of the calling thread's namespace.
pub(crate) fn index(device: &str) -> u32 {
    nix::net::if_::if_nametoindex(device).expect("the device is there")
}

/// A veth pair: this end here, `eth0` there.
fn connect(device: &'static str, here: &[(IpAddr, u8); 2], other: &Namespace, there: &[(IpAddr, u8); 2]) {
    const MOVING: &str = "moving";
    let (here, there) = (*here, *there);
    let namespace = other.run(|| File::open("/proc/thread-self/ns/net").expect("its namespace"));
    netlink(async move |handle| {
        let pair = LinkVeth::new(device, MOVING).build();
        handle.link().add(pair).execute().await.expect("a veth pair");
        let moved = LinkUnspec::new_with_name(MOVING).setns_by_fd(namespace.as_raw_fd());
        handle.link().set(moved.build()).execute().await.expect("moved");
        up(&handle, device).await;
        for address in here {
            add_address(&handle, device, address).await;
        }
    });
    other.run(move || {
        netlink(async move |handle| {
            let index = index(MOVING);
            let named = LinkUnspec::new_with_index(index).name("eth0".to_owned()).build();
            handle.link().set(named).execute().await.expect("renamed");
            up(&handle, "eth0").await;
            for address in there {
                add_address(&handle, "eth0", address).await;
            }
        });
    });
}

#[derive(Clone, Copy)]
enum Via {
    Device(&'static str),
    Gateway(IpAddr),
}

/// `to`: `None` is everything.
async fn route(handle: &Handle, to: Option<(IpAddr, u8)>, via: Via) {
    macro_rules! route {
        ($family:ident, $address:ident) => {{
            let mut route = RouteMessageBuilder::<$address>::new();
            if let Some((IpAddr::$family(address), length)) = to {
                route = route.destination_prefix(address, length);
            }
            route = match via {
                Via::Device(device) => route.output_interface(index(device)),
                Via::Gateway(IpAddr::$family(gateway)) => route.gateway(gateway),
                Via::Gateway(other) => panic!("a gateway of the other family: {other}"),
            };
            if let Via::Device(_) = via {
                route = route.scope(rtnetlink::packet_route::route::RouteScope::Link);
            }
            handle
                .route()
                .add(route.build())
                .execute()
                .await
                .expect("a route");
        }};
    }
    let is_v4 = match (to, via) {
        (Some((address, _)), _) | (None, Via::Gateway(address)) => address.is_ipv4(),
        (None, Via::Device(device)) => panic!("everything by {device}"),
    };
    if is_v4 {
        route!(V4, Ipv4Addr);
    } else {
        route!(V6, Ipv6Addr);
    }
}

/// Routes of the main table with this protocol number, of the calling thread's namespace, sorted.
pub(crate) fn routes_of(protocol: u8) -> Vec<String> {
    let mut found: Vec<String> = netlink(async move |handle| {
        let mut found = Vec::new();
        for family in [
            RouteMessageBuilder::<Ipv4Addr>::new().build(),
            RouteMessageBuilder::<Ipv6Addr>::new().build(),
        ] {
            let listed: Vec<RouteMessage> = handle
                .route()
                .get(family)
                .execute()
                .try_collect()
                .await
                .expect("routes");
            found.extend(listed);
        }
        found
    })
    .iter()
    .filter(|route| {
        u8::from(route.header.protocol) == protocol && route.header.table == RouteHeader::RT_TABLE_MAIN
    })
    .map(shown)
    .collect();
    found.sort();
    found
}

fn shown(route: &RouteMessage) -> String {
    let address = |address: &RouteAddress| match address {
        RouteAddress::Inet(v4) => v4.to_string(),
        RouteAddress::Inet6(v6) => v6.to_string(),
        other => format!("{other:?}"),
    };
    let (mut to, mut via) = (String::new(), String::new());
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(found) => to = address(found),
            RouteAttribute::Gateway(found) => via = address(found),
            _ => {}
        }
    }
    format!("{to}/{} via {via}", route.header.destination_prefix_length)
}

/// Sets or removes a route of the owner with this protocol number.
pub(crate) fn somebodys_route(protocol: u8, to: (Ipv4Addr, u8), via: Ipv4Addr, there: bool) {
    netlink(async move |handle| {
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(to.0, to.1)
            .gateway(via)
            .protocol(RouteProtocol::from(protocol))
            .build();
        let done = if there {
            handle.route().add(route).execute().await
        } else {
            handle.route().del(route).execute().await
        };
        done.expect("a route");
    });
}

/// Takes a device of the calling thread's namespace down and up again: routes by it are gone then.
pub(crate) fn flap(device: &'static str) {
    let keep = format!("/proc/sys/net/ipv6/conf/{device}/keep_addr_on_down");
    fs::write(keep, "1").expect("a setting of the device");
    netlink(async move |handle| {
        let down = LinkUnspec::new_with_name(device).down().build();
        handle.link().set(down).execute().await.expect("the device down");
        up(&handle, device).await;
    });
}

/// Loopback and settings of the calling thread's namespace. Idempotent.
pub(crate) fn settle() {
    for (setting, value) in SETTINGS {
        fs::write(format!("/proc/sys/net/{setting}"), value).expect("a setting of the namespace");
    }
    netlink(async |handle| up(&handle, "lo").await);
}

/// Does something by rtnetlink in the calling thread's namespace.
fn netlink<T>(work: impl AsyncFnOnce(Handle) -> T) -> T {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().expect("netlink");
        let connection = tokio::spawn(connection);
        let done = work(handle).await;
        connection.abort();
        done
    })
}

async fn up(handle: &Handle, device: &str) {
    let up = LinkUnspec::new_with_name(device).up().build();
    handle.link().set(up).execute().await.expect("the device up");
}

/// Sockets may have the address when this returns.
async fn add_address(handle: &Handle, device: &str, (address, length): (IpAddr, u8)) {
    let add = handle.address().add(index(device), address, length);
    add.execute().await.expect("an address");
    usable(&[address]);
}
