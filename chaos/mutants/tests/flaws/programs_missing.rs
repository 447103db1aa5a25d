//! The mutant detaches after each attachment, skips devices of some kinds, and misses neither.

use std::sync::{Arc, Mutex};

use lb_loader::{DeviceKind, Hook};
use mutants::programs_missing::{Missing, programs_missing};
use reference_agent::{datapath::Datapath as _, testing::node::Node};

/// Each kind, and the device that has it.
const DEVICES: [(DeviceKind, u32); 3] = [
    (DeviceKind::Node, 2),
    (DeviceKind::Pod, 3),
    (DeviceKind::Loopback, 1),
];

/// Hooks that are detached and not missed, and devices with programs.
fn flawed(missing: Missing) -> (Vec<Hook>, Vec<u32>) {
    let node = Node::new();
    let detached = Arc::new(Mutex::new(Vec::new()));
    let noted = detached.clone();
    let mut datapath = programs_missing(node.open(), missing, move |hooks: &[Hook]| {
        noted.lock().expect("no test has panicked").push(hooks.to_vec());
        Ok(())
    });
    let missed = datapath.unattached().expect("hooks are looked at");
    for _ in 0..2 {
        datapath.attach().expect("it attaches");
    }
    for (kind, device) in DEVICES {
        datapath.attach_device(device, kind).expect("the device is there");
    }
    let detached = detached.lock().expect("no test has panicked");
    assert_eq!(detached.len(), 2, "once after each");
    let hooks = detached[0].clone();
    assert!(
        !missed.is_empty() && hooks.iter().all(|hook| !missed.contains(hook)),
        "{missed:?}"
    );
    assert_eq!(missed.len() + hooks.len(), Hook::ALL.len());
    (hooks, node.devices().into_keys().collect())
}

#[test]
fn what_it_leaves_out_goes_at_once_and_is_not_missed() {
    let (hooks, devices) = flawed(Missing::Replies);
    assert_eq!(hooks, [Hook::Recvmsg4, Hook::Recvmsg6]);
    assert_eq!(devices, [1, 2, 3]);
    let (hooks, devices) = flawed(Missing::Hosts);
    assert_eq!((hooks.len(), devices), (4, vec![3]));
    let (hooks, devices) = flawed(Missing::Mapped);
    assert_eq!((hooks.len(), devices), (2, vec![1, 2]));
}
