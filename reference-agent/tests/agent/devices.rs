//! Programs at the devices that the host has, in memory.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use lb_loader::{DeviceKind, Hook, Ownership};
use reference_agent::{
    endpoint_address::Family,
    hooks::{Hooks, SCAN},
    host::View,
    metrics::Metrics,
    testing::node::Node,
};

/// A host with these devices.
fn host(devices: &[(u32, DeviceKind)]) -> Arc<View> {
    let devices = devices
        .iter()
        .map(|(index, kind)| (*index, (format!("device{index}"), *kind)));
    Arc::new(View {
        devices: devices.collect(),
        v4: Some([192, 0, 2, 1].into()),
        ..View::default()
    })
}

fn kinds<const N: usize>(devices: [(u32, DeviceKind); N]) -> BTreeMap<u32, DeviceKind> {
    devices.into()
}

const UPLINK: (u32, DeviceKind) = (2, DeviceKind::Node);
const POD: (u32, DeviceKind) = (7, DeviceKind::Pod);

#[test]
fn nothing_is_attached_to_devices_before_the_maps_serve() {
    let node = Node::new();
    let now = Instant::now();
    let mut hooks = Hooks::new(node.open(), Metrics::new(), now);
    hooks.set_host(host(&[UPLINK]));
    hooks.scan(false, now);
    assert_eq!(node.devices(), kinds([]));
    hooks.scan(true, now);
    assert_eq!(node.devices(), kinds([UPLINK]));
    assert_eq!(node.addresses().0, Some([192, 0, 2, 1].into()));
    assert_eq!(hooks.reasons(), [""; 0]);
}

#[test]
fn sockets_come_first_where_there_are_no_connections_yet_and_last_where_there_are() {
    let order = |node: &Node| {
        let now = Instant::now();
        let mut hooks = Hooks::new(node.open(), Metrics::new(), now);
        hooks.set_host(host(&[UPLINK, POD]));
        hooks.scan(true, now);
        assert_eq!(hooks.reasons(), [""; 0]);
        node.order()
    };
    let node = Node::new();
    assert_eq!(order(&node), ["cgroup", "2", "7"], "a first start");
    assert_eq!(order(&node), ["2", "7", "cgroup"], "maps are adopted");
    let node = Node::new();
    node.leave(Hook::ALL[0], 7, Ownership::Earlier);
    assert_eq!(order(&node), ["2", "7", "cgroup"], "a load whose pins are lost");
}

#[test]
fn a_pods_device_is_attached_when_it_comes_and_not_at_the_next_look() {
    let node = Node::new();
    let now = Instant::now();
    let mut hooks = Hooks::new(node.open(), Metrics::new(), now);
    hooks.set_host(host(&[UPLINK]));
    hooks.scan(true, now);
    hooks.set_host(host(&[UPLINK, POD]));
    assert_eq!(node.devices(), kinds([UPLINK, POD]));
    node.remove_device(POD.0);
    hooks.set_host(host(&[UPLINK]));
    assert_eq!(node.devices(), kinds([UPLINK]));
    assert_eq!(hooks.reasons(), [""; 0]);
}

#[test]
fn a_device_that_goes_before_it_is_attached_is_no_reason() {
    let node = Node::new();
    let now = Instant::now();
    let mut hooks = Hooks::new(node.open(), Metrics::new(), now);
    hooks.scan(true, now);
    node.remove_device(POD.0);
    hooks.set_host(host(&[POD]));
    assert_eq!(hooks.reasons(), [""; 0]);
}

#[test]
fn a_device_that_lets_nothing_be_attached_is_named_and_tried_again() {
    let node = Node::new();
    let now = Instant::now();
    let mut hooks = Hooks::new(node.open(), Metrics::new(), now);
    node.refuse_device(POD.0, true);
    hooks.set_host(host(&[UPLINK, POD]));
    hooks.scan(true, now);
    assert_eq!(node.devices(), kinds([UPLINK]), "the others are served");
    assert_eq!(node.programs(Hook::ALL[0]), [1000]);
    let [reason] = &hooks.reasons()[..] else {
        panic!("one reason: {:?}", hooks.reasons())
    };
    assert!(
        reason.starts_with("not attached to device device7 (7): failed to"),
        "{reason}"
    );
    assert_eq!(
        hooks.unattached_reasons(),
        [""; 0],
        "one pod's device is one pod's"
    );
    node.refuse_device(POD.0, false);
    hooks.scan(true, now + SCAN - Duration::from_millis(1));
    assert_eq!(node.devices(), kinds([UPLINK]), "not before its time");
    hooks.scan(true, now + SCAN);
    assert_eq!(node.devices(), kinds([UPLINK, POD]));
    assert_eq!(hooks.reasons(), [""; 0]);
}

#[test]
fn without_the_device_by_which_the_network_comes_nobody_outside_is_served() {
    let node = Node::new();
    let now = Instant::now();
    let mut hooks = Hooks::new(node.open(), Metrics::new(), now);
    node.refuse_device(UPLINK.0, true);
    hooks.set_host(host(&[UPLINK, POD]));
    hooks.scan(true, now);
    assert_eq!(hooks.unattached_reasons(), hooks.reasons());
    assert_eq!(hooks.reasons().len(), 1);
}

#[test]
fn of_many_devices_that_fail_some_are_named_and_the_rest_counted() {
    let node = Node::new();
    let now = Instant::now();
    let mut hooks = Hooks::new(node.open(), Metrics::new(), now);
    let devices: Vec<_> = (10..30).map(|index| (index, DeviceKind::Pod)).collect();
    for (index, _) in &devices {
        node.refuse_device(*index, true);
    }
    hooks.set_host(host(&devices));
    hooks.scan(true, now);
    let reasons = hooks.reasons();
    assert_eq!(reasons.len(), 9, "{reasons:?}");
    assert_eq!(reasons.last().map(String::as_str), Some("nor to 12 more devices"));
}

#[test]
fn what_somebody_detaches_is_attached_again_and_what_is_not_wanted_any_more_is_detached() {
    let node = Node::new();
    let now = Instant::now();
    let mut hooks = Hooks::new(node.open(), Metrics::new(), now);
    hooks.set_host(host(&[UPLINK, POD]));
    hooks.scan(true, now);
    node.detach_device(UPLINK.0);
    hooks.scan(true, now + SCAN);
    assert_eq!(node.devices(), kinds([UPLINK, POD]));
    // The pod's device has become one of the node's; the uplink is not to be served.
    hooks.set_host(host(&[(POD.0, DeviceKind::Node)]));
    assert_eq!(node.devices()[&POD.0], DeviceKind::Node);
    hooks.scan(true, now + SCAN * 2);
    assert_eq!(node.devices(), kinds([(POD.0, DeviceKind::Node)]));
}

#[test]
fn somebody_has_detached_programs_from_a_device_only_if_it_is_still_there() {
    let node = Node::new();
    let now = Instant::now();
    let mut hooks = Hooks::new(node.open(), Metrics::new(), now);
    hooks.set_host(host(&[UPLINK, POD]));
    hooks.scan(true, now);
    node.detach_device(UPLINK.0);
    // The view that says so is yet to come.
    node.remove_device(POD.0);
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(Mutex::new(log.clone()));
    tracing::subscriber::with_default(subscriber.finish(), || hooks.scan(true, now + SCAN));
    let said = log.text();
    let warnings: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("not by this agent"))
        .collect();
    assert_eq!(warnings.len(), 1, "{said}");
    assert!(warnings[0].contains("device=2"), "{said}");
    assert_eq!(node.devices(), kinds([UPLINK]));
    assert_eq!(hooks.reasons(), [""; 0]);
}

/// What is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("nobody has panicked")).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody has panicked").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_restart_switches_the_programs_at_devices_and_leaves_none_where_they_are_not_wanted() {
    let node = Node::new();
    let now = Instant::now();
    let mut hooks = Hooks::new(node.open(), Metrics::new(), now);
    hooks.set_host(host(&[UPLINK, POD]));
    hooks.scan(true, now);
    drop(hooks);
    let mut hooks = Hooks::new(node.open(), Metrics::new(), now);
    hooks.set_host(host(&[UPLINK]));
    hooks.scan(false, now);
    assert_eq!(node.devices(), kinds([UPLINK]), "adopted maps serve at once");
    assert_eq!(hooks.reasons(), [""; 0]);
}

#[test]
fn a_restart_keeps_the_nodes_address_until_what_decides_it_is_known() {
    let (first, second) = ([192, 0, 2, 1].into(), [192, 0, 2, 9].into());
    let view = |own: Ipv4Addr, guessed: bool, addresses: &[Ipv4Addr]| {
        let guessed = guessed.then_some([Family::V4, Family::V6]);
        Arc::new(View {
            v4: Some(own),
            guessed: guessed.into_iter().flatten().collect(),
            addresses: addresses.iter().map(|&address| address.into()).collect(),
            ..View::default()
        })
    };
    let node = Node::new();
    let now = Instant::now();
    let mut hooks = Hooks::new(node.open(), Metrics::new(), now);
    hooks.set_host(view(first, true, &[first, second]));
    hooks.scan(true, now);
    assert_eq!(node.addresses().0, Some(first), "no earlier start knew better");
    drop(hooks);
    let mut hooks = Hooks::new(node.open(), Metrics::new(), now);
    hooks.set_host(view(second, true, &[first, second]));
    hooks.scan(false, now);
    assert_eq!(node.addresses().0, Some(first), "connections come back to it");
    hooks.set_host(view(second, false, &[first, second]));
    assert_eq!(node.addresses().0, Some(second), "the Node object says so");
    hooks.set_host(view(first, true, &[first]));
    assert_eq!(
        node.addresses().0,
        Some(first),
        "nothing comes back to an address that is gone"
    );
}
