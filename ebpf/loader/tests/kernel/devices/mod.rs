//! Packet programs at network devices.
//!
//! | module | decides |
//! |---|---|
//! | `around` | clients that come back to a backend itself, with the port that a flow has had |
//! | `attach` | attached, adopted by a restart, gone with the device |
//! | `fragments` | datagrams in pieces that arrive in any order |
//! | `inward` | what the node sends to itself, by frontends at its own address and others, and answers to node ports' numbers |
//! | `packets` | packets from a client outside to pods here and elsewhere, and back |
//! | `replace` | connections go on when a new set of maps takes another's place |
//! | `twice` | a client that reaches one backend twice from one port, by its socket and by packets |
//! | `network` | namespaces and devices for all of these |

mod around;
mod attach;
mod fragments;
mod inward;
mod network;
mod packets;
mod replace;
mod twice;

use std::net::IpAddr;

use lb_loader::{Datapath, DeviceAttachment, DeviceMode, NodeOptions, Options, Ownership};

use self::network::FAMILIES;
use crate::support::Node;

/// Both ways to attach; a kernel without TCX has only the second, whichever is asked for. The filter's priority is
/// nobody else's.
const MODES: [DeviceMode; 2] = [DeviceMode::First, DeviceMode::Filter { priority: 77 }];

/// With the node's addresses.
fn options(node: &Node, mode: DeviceMode) -> Options {
    let [IpAddr::V4(v4), IpAddr::V6(v6)] = FAMILIES.map(|family| family.node) else {
        panic!("one family each")
    };
    Options {
        node: NodeOptions {
            v4: Some(v4),
            v6: Some(v6),
            // Clients open thousands of UDP flows to one backend, each of which keeps its port for two minutes.
            snat_ports: Some(10_000..=65_535),
            ..NodeOptions::default()
        },
        devices: mode,
        ..node.options.clone()
    }
}

/// Opens and attaches to the cgroup, with a way to attach to devices.
fn start(node: &Node, mode: DeviceMode) -> Datapath {
    let options = Options {
        devices: mode,
        ..node.options.clone()
    };
    let mut datapath = Datapath::open(&options).expect("the datapath opens");
    datapath.attach().expect("attached to the cgroup");
    datapath
}

fn scan(datapath: &Datapath) -> Vec<DeviceAttachment> {
    datapath.scan_devices().expect("what is attached")
}

/// Those of an owner.
fn of(attachments: Vec<DeviceAttachment>, ownership: Ownership) -> Vec<DeviceAttachment> {
    attachments
        .into_iter()
        .filter(|attachment| attachment.ownership == ownership)
        .collect()
}
