//! What the kernel has is what was asked for.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use futures::TryStreamExt as _;
use rtnetlink::{
    RouteMessageBuilder,
    packet_route::route::{RouteAttribute, RouteMessage, RouteMetric, RouteProtocol},
};
use test_network::{Device, EnteredNamespace, IpNet, Links, Namespace, NetworkError, Route, Via, set_sysctl};
use testing::patience::LIMIT;

/// Addresses of one family: two neighbours, and a host behind the second.
struct Family {
    near: IpNet,
    far: IpNet,
    beyond: IpAddr,
}

fn families() -> [Family; 2] {
    let family = |near: &str, far: &str, beyond: &str| Family {
        near: near.parse().expect("an address with a length"),
        far: far.parse().expect("an address with a length"),
        beyond: beyond.parse().expect("an address"),
    };
    [
        family("192.0.2.1/24", "192.0.2.2/24", "198.51.100.2"),
        family("2001:db8:1::1/64", "2001:db8:1::2/64", "2001:db8:2::2"),
    ]
}

/// The thread in a namespace of its own; `None`: no root, and the test is on record as skipped.
fn entered() -> Option<EnteredNamespace> {
    testing::root_or_skip(&testing::current()).then(|| EnteredNamespace::enter().expect("a namespace"))
}

fn namespace() -> PathBuf {
    fs::read_link("/proc/thread-self/ns/net").expect("the thread's namespace")
}

/// A socket that waits no longer than tests do.
fn socket(address: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).expect("a socket");
    socket.set_read_timeout(Some(LIMIT)).expect("a limit");
    socket
}

/// One datagram there and one back, neither sent twice.
#[track_caller]
fn exchange(here: &UdpSocket, there: &UdpSocket) {
    let [own, other] = [here, there].map(|socket| socket.local_addr().expect("its address"));
    here.send_to(b"there", other).expect("sent");
    let mut buffer = [0; 16];
    let (_, from) = there.recv_from(&mut buffer).expect("it arrives");
    assert_eq!(from, own);
    there.send_to(b"back", own).expect("sent");
    let (_, from) = here.recv_from(&mut buffer).expect("it arrives");
    assert_eq!(from, other);
}

#[test]
fn a_thread_goes_back_to_where_it_was() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let before = namespace();
    let outer = EnteredNamespace::enter().expect("a namespace");
    let between = namespace();
    assert_ne!(between, before);
    let inner = EnteredNamespace::enter().expect("another namespace");
    assert_ne!(namespace(), between);
    drop(inner);
    assert_eq!(namespace(), between);
    drop(outer);
    assert_eq!(namespace(), before);
}

#[test]
fn links_and_jobs_of_a_namespace_leave_the_calling_thread_in_its_own() {
    let Some(_entered) = entered() else { return };
    let before = namespace();
    let other = Namespace::create().expect("a namespace");
    let inside = other.run(namespace);
    assert_ne!(inside, before);
    let links = other.links().expect("its links");
    links
        .veth(Device::named("a"), Device::named("b"))
        .expect("a pair in it");
    assert_eq!(namespace(), before);
    Links::here()
        .expect("links")
        .index("a")
        .expect_err("it is not here");
    other.run(|| Links::here().expect("links").index("a").expect("it is there"));
}

#[test]
fn a_panic_of_a_job_is_the_callers_and_the_namespace_serves_on() {
    let Some(_entered) = entered() else { return };
    let namespace = Namespace::create().expect("a namespace");
    let panic = catch_unwind(AssertUnwindSafe(|| {
        namespace.run(|| std::panic::panic_any("of the job"));
    }));
    let panic = panic.expect_err("the caller panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"of the job"));
    assert_eq!(namespace.run(|| 7), 7);
}

#[test]
fn a_datagram_to_an_address_that_was_just_added_arrives() {
    /// The kernel's work queue is late for about one in thirty, measured on Linux 6.18.
    const ADDRESSES: u16 = 200;
    let Some(_entered) = entered() else { return };
    let links = Links::here().expect("links");
    links
        .veth(Device::named("near"), Device::named("far"))
        .expect("a pair");
    for last in 1..=ADDRESSES {
        let v4 = Ipv4Addr::new(192, 0, 2, u8::try_from(last).expect("a byte"));
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, last);
        for address in [IpAddr::V4(v4), IpAddr::V6(v6)] {
            links.addresses("near", &[address.into()]).expect("an address");
            let socket = socket(address);
            let own = socket.local_addr().expect("its address");
            socket.send_to(b"own", own).expect("sent");
            socket.recv_from(&mut [0; 16]).expect("it arrives");
        }
    }
}

#[test]
fn addresses_are_reached_between_namespaces_as_soon_as_they_are_added() {
    let Some(_entered) = entered() else { return };
    let here = Links::here().expect("links");
    let other = Namespace::create().expect("a namespace");
    let there = other.links().expect("links");
    here.veth(Device::named("near"), other.device("far"))
        .expect("a pair");
    for Family { near, far, beyond } in families() {
        here.addresses("near", &[near]).expect("an address");
        there.addresses("far", &[far]).expect("an address");
        there.addresses("lo", &[beyond.into()]).expect("an address");
        exchange(&socket(near.addr()), &other.run(move || socket(far.addr())));

        let unrouted = socket(near.addr()).send_to(b"there", SocketAddr::new(beyond, 9));
        assert_eq!(
            unrouted.expect_err("no route").kind(),
            io::ErrorKind::NetworkUnreachable
        );
        here.add_route(Route::to(beyond.into(), Via::Gateway(far.addr())))
            .expect("a route");
        exchange(&socket(near.addr()), &other.run(move || socket(beyond)));
    }
}

#[test]
fn default_routes_and_routes_by_a_device_lead_to_a_namespace() {
    let Some(_entered) = entered() else { return };
    let here = Links::here().expect("links");
    let other = Namespace::create().expect("a namespace");
    let there = other.links().expect("links");
    here.veth(Device::named("pod"), other.device("eth0"))
        .expect("a pair");
    for Family { near, far, .. } in families() {
        let [gateway, pod] = [near.addr(), far.addr()];
        here.addresses("pod", &[gateway.into()]).expect("an address");
        there.addresses("eth0", &[pod.into()]).expect("an address");
        here.add_route(Route::to(pod.into(), Via::Device("pod")))
            .expect("a route to the pod");
        there
            .add_route(Route::to(gateway.into(), Via::Device("eth0")))
            .expect("a route to the gateway");
        there
            .add_route(Route::default_via(gateway))
            .expect("a default route");
        exchange(&socket(gateway), &other.run(move || socket(pod)));
    }
}

#[test]
fn a_device_has_the_index_link_address_and_mtu_that_are_asked_for() {
    let Some(_entered) = entered() else { return };
    let links = Links::here().expect("links");
    let other = Namespace::create().expect("a namespace");
    let read = |file: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{file}"));
        text.map(|text| text.trim().to_owned())
    };
    links
        .veth(
            Device::named("a")
                .index(4242)
                .link_address([2, 0, 0, 0, 0, 1])
                .mtu(1400),
            other
                .device("b")
                .index(4243)
                .link_address([2, 0, 0, 0, 0, 2])
                .mtu(1300),
        )
        .expect("a pair");
    assert_eq!(links.index("a").expect("it is here"), 4242);
    assert_eq!(read("a/mtu").expect("a setting"), "1400");
    let there = other.links().expect("links");
    assert_eq!(there.index("b").expect("it is there"), 4243);
    let neighbours: [(&Links, u32, [u8; 6]); 2] = [
        (&links, 4242, [2, 0, 0, 0, 0, 1]),
        (&there, 4243, [2, 0, 0, 0, 0, 2]),
    ];
    for (links, index, expected) in neighbours {
        let found = links.request(async |handle| {
            let mut found = handle.link().get().match_index(index).execute();
            found.try_next().await.expect("a device").expect("the device")
        });
        let address = rtnetlink::packet_route::link::LinkAttribute::Address(expected.to_vec());
        assert!(found.attributes.contains(&address), "{found:?}");
    }

    links.remove("a").expect("removed");
    links.index("a").expect_err("it is gone");
    there.index("b").expect_err("its peer is gone with it");
}

/// Routes of the main table to this network.
fn routes(links: &Links, to: IpNet) -> Vec<RouteMessage> {
    let all: Vec<RouteMessage> = links.request(async |handle| {
        let every = match to {
            IpNet::V4(_) => RouteMessageBuilder::<Ipv4Addr>::new().build(),
            IpNet::V6(_) => RouteMessageBuilder::<Ipv6Addr>::new().build(),
        };
        let found = handle.route().get(every).execute();
        found.try_collect().await.expect("routes")
    });
    let destination = RouteAttribute::Destination(to.network().into());
    all.into_iter()
        .filter(|route| route.header.destination_prefix_length == to.prefix_len())
        .filter(|route| route.attributes.contains(&destination))
        .collect()
}

#[test]
fn a_route_has_its_owner_and_mtu_and_goes_with_its_device_or_alone() {
    let Some(_entered) = entered() else { return };
    let links = Links::here().expect("links");
    links
        .veth(Device::named("near"), Device::named("far"))
        .expect("a pair");
    for Family { near, far, beyond } in families() {
        links.addresses("near", &[near]).expect("an address");
        // Bits beyond the length are no part of the network.
        let network = IpNet::new(beyond, near.prefix_len()).expect("a length");
        let route = Route::to(network, Via::Gateway(far.addr()))
            .locked_mtu(1300)
            .protocol(99);
        links.add_route(route).expect("a route");
        let [found] = &routes(&links, network)[..] else {
            panic!("expected one route")
        };
        assert_eq!(found.header.protocol, RouteProtocol::from(99));
        let metrics = found.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Metrics(metrics) => Some(metrics),
            _ => None,
        });
        let metrics = metrics.expect("metrics");
        assert!(metrics.contains(&RouteMetric::Mtu(1300)), "{metrics:?}");
        assert!(metrics.contains(&RouteMetric::Lock(1 << 2)), "{metrics:?}");
        links.remove_route(route).expect("removed");
        assert_eq!(routes(&links, network), []);

        links.add_route(route).expect("a route");
        links.down("near").expect("down");
        assert_eq!(routes(&links, network), []);
        links.up("near").expect("up again");
    }
}

#[test]
fn an_unreachable_route_is_an_error_to_senders_and_a_neighbour_is_known() {
    let Some(_entered) = entered() else { return };
    let links = Links::here().expect("links");
    links
        .veth(Device::named("near"), Device::named("far"))
        .expect("a pair");
    for Family { near, far, beyond } in families() {
        links.addresses("near", &[near]).expect("an address");
        links
            .add_route(Route::to(beyond.into(), Via::Unreachable))
            .expect("a route");
        let sent = socket(near.addr()).send_to(b"there", SocketAddr::new(beyond, 9));
        assert_eq!(
            sent.expect_err("unreachable").kind(),
            io::ErrorKind::HostUnreachable
        );
        links
            .neighbour("near", far.addr(), [2, 0, 0, 0, 0, 9])
            .expect("a neighbour");
        links
            .neighbour("near", far.addr(), [2, 0, 0, 0, 0, 9])
            .expect_err("it is known already");
    }
}

#[test]
fn errors_name_what_failed() {
    let Some(_entered) = entered() else { return };
    let links = Links::here().expect("links");
    let pair = || links.veth(Device::named("a"), Device::named("b"));
    pair().expect("a pair");
    let shown = |error: NetworkError| error.to_string();
    assert_eq!(
        pair().map_err(shown),
        Err("failed to add the veth pair a (veth needs CONFIG_VETH)".to_owned())
    );
    assert_eq!(
        links.remove("c").map_err(shown),
        Err("failed to find the device c".to_owned())
    );
    let to = "192.0.2.0/24".parse().expect("a network");
    assert_eq!(
        links.remove_route(Route::to(to, Via::Unreachable)).map_err(shown),
        Err("failed to remove the route to 192.0.2.0/24".to_owned())
    );
    assert_eq!(
        set_sysctl("ipv4/ip_forward", "x").map_err(shown),
        Err(
            "failed to set /proc/sys/net/ipv4/ip_forward to x (in a container: run it privileged, so that \
             /proc/sys is writable)"
                .to_owned()
        )
    );
}
