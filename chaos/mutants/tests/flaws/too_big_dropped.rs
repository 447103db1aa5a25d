//! The mutant has its program before the agent's, once on each of the node's own devices.

use std::sync::{Arc, Mutex};

use lb_loader::DeviceKind;
use mutants::too_big_dropped::too_big_dropped;
use reference_agent::{datapath::Datapath as _, testing::node::Node};

#[test]
fn devices_of_the_node_alone_drop_them_and_all_have_the_agents_programs() {
    let node = Node::new();
    let dropping = Arc::new(Mutex::new(Vec::new()));
    let noted = dropping.clone();
    let mut datapath = too_big_dropped(node.open(), move |device| {
        noted.lock().expect("no test has panicked").push(device);
        Ok(())
    });
    for (kind, device) in [
        (DeviceKind::Node, 2),
        (DeviceKind::Pod, 3),
        (DeviceKind::Loopback, 1),
        (DeviceKind::Node, 2),
    ] {
        datapath.attach_device(device, kind).expect("the device is there");
    }
    assert_eq!(*dropping.lock().expect("no test has panicked"), [2]);
    let devices: Vec<u32> = node.devices().into_keys().collect();
    assert_eq!(devices, [1, 2, 3]);
}
