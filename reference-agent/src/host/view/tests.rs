//! How clusters wire their nodes and pods, and what is served of it.

use super::*;
use crate::host::snapshot::HostAddress;

/// `index name kind [options]`: `up` is the default.
#[derive(Default)]
struct Machine(Snapshot);

impl Machine {
    fn link(mut self, index: u32, name: &str, kind: LinkKind) -> Self {
        self.0.links.insert(
            index,
            Link {
                name: name.to_owned(),
                kind,
                ethernet: true,
                up: true,
                elsewhere: false,
                mtu: Some(1500),
                controller: None,
                lower: None,
            },
        );
        self
    }

    fn with(mut self, index: u32, change: impl FnOnce(&mut Link)) -> Self {
        change(self.0.links.get_mut(&index).expect("the link"));
        self
    }

    /// One end of a pair whose other end is in a pod.
    fn pod(self, index: u32, name: &str) -> Self {
        self.link(index, name, LinkKind::Pair)
            .with(index, |link| link.elsewhere = true)
    }

    /// Alone, or with the length of its subnet's prefix.
    fn address(mut self, device: u32, text: &str) -> Self {
        let alone = || text.parse().map(|address: IpAddr| IpNet::from(address));
        let net: IpNet = text.parse().or_else(|_| alone()).expect("an address");
        self.0.addresses.push(HostAddress {
            device,
            address: net.addr(),
            prefix_length: net.prefix_len(),
        });
        self
    }

    fn route(mut self, device: u32) -> Self {
        self.0.defaults.push((Family::V4, device));
        self
    }

    fn view(&self, options: &HostOptions) -> View {
        View::new(&self.0, options, Some(&[]))
    }

    /// Names of devices, the node's first.
    #[track_caller]
    fn serves(&self, options: &HostOptions, node: &[&str], pods: &[&str]) {
        let view = self.view(options);
        let of = |wanted: DeviceKind| -> Vec<&str> {
            let served = view.devices.values();
            served
                .filter(|(_, kind)| *kind == wanted)
                .map(|(name, _)| name.as_str())
                .collect()
        };
        assert_eq!(of(DeviceKind::Node), node, "the node's");
        assert_eq!(of(DeviceKind::Pod), pods, "pods'");
    }
}

/// Loopback, and an uplink with an address and the default route.
fn machine() -> Machine {
    Machine::default()
        .link(1, "lo", LinkKind::Loopback)
        .link(2, "eth0", LinkKind::Other)
        .address(2, "192.0.2.1")
        .route(2)
}

fn globs(patterns: &[&str]) -> Vec<Pattern> {
    patterns
        .iter()
        .map(|pattern| Pattern::new(pattern).expect("a pattern"))
        .collect()
}

#[test]
fn ptp_and_kindnet_put_the_gateway_at_each_pods_device() {
    machine()
        .pod(3, "veth1-2")
        .address(3, "10.244.1.1")
        .pod(4, "veth1-3")
        .address(4, "10.244.1.1")
        .serves(&HostOptions::default(), &["eth0"], &["veth1-2", "veth1-3"]);
}

#[test]
fn the_uplink_of_a_node_that_is_a_container_is_a_pair_too() {
    Machine::default()
        .link(1, "lo", LinkKind::Loopback)
        .pod(2, "eth0")
        .address(2, "172.18.0.2")
        .route(2)
        .pod(3, "veth1-2")
        .address(3, "10.244.1.1")
        .serves(&HostOptions::default(), &["eth0"], &["veth1-2"]);
}

#[test]
fn a_pair_with_a_subnet_leads_to_another_network() {
    for address in ["203.0.113.1/24", "203.0.113.0/31", "2001:db8:7::1/64"] {
        let uplinks = machine().pod(3, "eth1").address(3, address);
        uplinks.serves(&HostOptions::default(), &["eth0", "eth1"], &[]);
        let down = uplinks.with(3, |link| link.up = false);
        assert!(
            !down.view(&HostOptions::default()).devices.contains_key(&3),
            "{address}"
        );
    }
    for address in ["10.244.1.1/32", "fd00:1::1/128"] {
        let pods = machine().pod(3, "veth1-2").address(3, address);
        pods.serves(&HostOptions::default(), &["eth0"], &["veth1-2"]);
    }
}

#[test]
fn pairs_in_a_bond_lead_to_the_network() {
    machine()
        .pod(3, "eth1")
        .with(3, |link| link.controller = Some(4))
        .link(4, "bond0", LinkKind::Bond)
        .address(4, "203.0.113.1/24")
        .serves(&HostOptions::default(), &["eth0", "bond0"], &[]);
}

#[test]
fn a_pair_that_another_device_lies_on_leads_to_the_network() {
    let above = machine()
        .pod(3, "eth1")
        .link(4, "macvlan0", LinkKind::Other)
        .with(4, |link| link.lower = Some(3));
    above.serves(&HostOptions::default(), &["eth0"], &[]);
    above
        .address(4, "203.0.113.1/24")
        .serves(&HostOptions::default(), &["eth0", "macvlan0"], &[]);
}

#[test]
fn a_macvlan_on_a_device_of_another_namespace_is_the_nodes() {
    machine()
        .link(3, "eth1", LinkKind::Other)
        .with(3, |link| link.elsewhere = true)
        .address(3, "203.0.113.1/24")
        .serves(&HostOptions::default(), &["eth0", "eth1"], &[]);
}

#[test]
fn a_second_uplink_that_is_a_pair_is_known_by_the_nodes_address_or_its_name() {
    let machine = machine().pod(3, "eth1").address(3, "198.51.100.1");
    machine.serves(&HostOptions::default(), &["eth0"], &["eth1"]);
    let view = View::new(
        &machine.0,
        &HostOptions::default(),
        Some(&["198.51.100.1".parse().expect("an address")]),
    );
    assert_eq!(view.devices[&3].1, DeviceKind::Node);
    assert_eq!(view.v4, Some(Ipv4Addr::new(198, 51, 100, 1)));
    let options = HostOptions {
        node_devices: globs(&["eth*"]),
        ..HostOptions::default()
    };
    machine.serves(&options, &["eth0", "eth1"], &[]);
}

#[test]
fn a_bridges_ports_are_served_and_not_the_bridge() {
    machine()
        .link(3, "cni0", LinkKind::Bridge)
        .address(3, "10.244.1.1")
        .pod(4, "vethabc")
        .with(4, |link| link.controller = Some(3))
        .serves(&HostOptions::default(), &["eth0"], &["vethabc"]);
}

#[test]
fn a_bridge_with_the_uplink_in_it_is_the_nodes_device() {
    Machine::default()
        .link(2, "eth0", LinkKind::Other)
        .with(2, |link| link.controller = Some(3))
        .link(3, "br0", LinkKind::Bridge)
        .address(3, "192.0.2.1")
        .route(3)
        .pod(4, "vethabc")
        .with(4, |link| link.controller = Some(3))
        .serves(&HostOptions::default(), &["br0"], &["vethabc"]);
}

#[test]
fn pods_of_calico_and_cilium_have_no_address_on_the_host() {
    machine()
        .pod(3, "cali123")
        .pod(4, "lxc456")
        .pod(5, "eni789")
        .link(6, "vxlan.calico", LinkKind::Other)
        .address(6, "10.244.1.0")
        .serves(
            &HostOptions::default(),
            &["eth0", "vxlan.calico"],
            &["cali123", "lxc456", "eni789"],
        );
}

#[test]
fn bonds_and_vlans_are_served_and_not_what_they_are_made_of() {
    Machine::default()
        .link(2, "eth0", LinkKind::Other)
        .with(2, |link| link.controller = Some(4))
        .link(3, "eth1", LinkKind::Other)
        .with(3, |link| link.controller = Some(4))
        .link(4, "bond0", LinkKind::Bond)
        .link(5, "bond0.7", LinkKind::Other)
        .address(5, "192.0.2.1")
        .route(5)
        .serves(&HostOptions::default(), &["bond0.7"], &[]);
}

#[test]
fn a_device_of_a_virtual_router_is_served() {
    machine()
        .link(3, "vrf0", LinkKind::Other)
        .link(4, "eth1", LinkKind::Other)
        .with(4, |link| link.controller = Some(3))
        .address(4, "198.51.100.1")
        .serves(&HostOptions::default(), &["eth0", "eth1"], &[]);
}

#[test]
fn a_pair_within_the_host_and_sinks_are_left_alone() {
    let machine = machine()
        .link(3, "veth-a", LinkKind::Pair)
        .link(4, "veth-b", LinkKind::Pair)
        .link(5, "nodelocaldns", LinkKind::Sink)
        .address(5, "169.254.20.10")
        .link(6, "kube-ipvs0", LinkKind::Sink)
        .address(6, "10.96.0.1");
    machine.serves(&HostOptions::default(), &["eth0"], &[]);
    let addresses = machine.view(&HostOptions::default()).addresses;
    let expected = ["169.254.20.10", "192.0.2.1"].map(|text| text.parse().expect("an address"));
    assert_eq!(
        addresses,
        expected.into(),
        "kube-proxy's are no addresses of the host"
    );
}

#[test]
fn a_device_without_ethernet_header_that_should_be_served_is_named() {
    let machine = machine()
        .link(3, "wg0", LinkKind::Other)
        .with(3, |link| link.ethernet = false)
        .address(3, "10.9.0.1")
        .link(4, "tun9", LinkKind::Other)
        .with(4, |link| link.ethernet = false);
    let view = machine.view(&HostOptions::default());
    assert_eq!(view.unserved, [(3, "wg0".to_owned())].into());
    machine.serves(&HostOptions::default(), &["eth0"], &[]);
}

#[test]
fn names_that_were_given_count_alone() {
    let machine = machine().pod(3, "cali1").pod(4, "docker2");
    let options = HostOptions {
        pod_devices: globs(&["cali*"]),
        ..HostOptions::default()
    };
    machine.serves(&options, &["eth0"], &["cali1"]);
}

#[test]
fn the_nodes_address_is_the_given_one_or_the_nodes_or_the_best_routes() {
    let machine = Machine::default()
        .link(2, "eth0", LinkKind::Other)
        .address(2, "2001:db8::1")
        .address(2, "192.0.2.1")
        .address(2, "192.0.2.9")
        .link(3, "eth1", LinkKind::Other)
        .address(3, "198.51.100.1")
        .route(3)
        .route(2);
    let v4 = |options: &HostOptions, internal: &[&str]| {
        let internal: Vec<IpAddr> = internal
            .iter()
            .map(|text| text.parse().expect("an address"))
            .collect();
        View::new(&machine.0, options, Some(&internal))
            .v4
            .map(|address| address.to_string())
    };
    let none = HostOptions::default();
    assert_eq!(
        v4(&none, &[]).as_deref(),
        Some("198.51.100.1"),
        "of the first default route"
    );
    assert_eq!(
        v4(&none, &["2001:db8::1", "192.0.2.9"]).as_deref(),
        Some("192.0.2.9")
    );
    assert_eq!(
        v4(&none, &["203.0.113.1"]).as_deref(),
        Some("198.51.100.1"),
        "an address of the Node object that no device has is a load balancer's"
    );
    let given = HostOptions {
        node_ips: vec!["192.0.2.1".parse().expect("an address")],
        ..HostOptions::default()
    };
    assert_eq!(v4(&given, &["192.0.2.9"]).as_deref(), Some("192.0.2.1"));
    assert_eq!(machine.view(&none).v6, None, "no default route of IPv6");
}

#[test]
fn the_nodes_address_is_a_guess_until_its_object_is_known_unless_it_is_given() {
    let machine = machine();
    let guessed = |ips: &[&str], internal: Option<&[IpAddr]>| {
        let options = HostOptions {
            node_ips: ips.iter().map(|ip| ip.parse().expect("an address")).collect(),
            ..HostOptions::default()
        };
        View::new(&machine.0, &options, internal).guessed
    };
    assert_eq!(guessed(&[], None), [Family::V4, Family::V6].into());
    assert_eq!(guessed(&["192.0.2.1"], None), [Family::V6].into());
    assert_eq!(guessed(&["192.0.2.1", "2001:db8::1"], None), [].into());
    assert_eq!(guessed(&[], Some(&[])), [].into(), "there is no Node object");
}

#[test]
fn node_ports_answer_where_they_were_told_to() {
    let options = HostOptions {
        node_port_addresses: vec!["192.0.2.0/24".parse().expect("a range")],
        ..HostOptions::default()
    };
    let view = machine().address(2, "198.51.100.1").view(&options);
    assert_eq!(view.node_ports, ["192.0.2.1".parse().expect("an address")].into());
}

#[test]
fn addresses_of_a_device_that_is_down_are_nobodys() {
    let view = machine()
        .with(2, |link| link.up = false)
        .view(&HostOptions::default());
    assert_eq!(view.addresses, BTreeSet::new());
    assert_eq!(view.v4, None);
    assert_eq!(view.devices[&2].0, "eth0", "it may come up");
}

#[test]
fn the_mtu_of_pods_is_that_of_the_devices_that_have_the_nodes_addresses() {
    let machine = Machine::default()
        .link(2, "eth0", LinkKind::Other)
        .with(2, |link| link.mtu = Some(1450))
        .address(2, "192.0.2.1")
        .link(3, "eth1", LinkKind::Other)
        .with(3, |link| link.mtu = Some(1280))
        .address(3, "2001:db8::1")
        .link(4, "eth2", LinkKind::Other)
        .with(4, |link| link.mtu = Some(576))
        .address(4, "198.51.100.1")
        .route(2);
    let options = |ips: &[&str]| HostOptions {
        node_ips: ips.iter().map(|ip| ip.parse().expect("an address")).collect(),
        ..HostOptions::default()
    };
    assert_eq!(machine.view(&options(&[])).mtu, Some(1450));
    assert_eq!(
        machine.view(&options(&["192.0.2.1", "2001:db8::1"])).mtu,
        Some(1280)
    );
    assert_eq!(Machine::default().view(&options(&[])).mtu, None);
}
