//! Rows of the tables, on real devices.

use std::collections::BTreeMap;

use lb_abi::{Address, Counter, address_flags};
use lb_loader::{DeviceHook, Wired};
use lb_packets::{
    check::check,
    model::{Read, read},
    rows,
    table::{Entry, Given, Row, Step, Verdict},
    test_node::{POD_A, POD_B, UPLINK, V4, V6},
};

use super::wire::{Wire, leaving, partial};

/// More than a veth of the node takes: the Ethernet header, a tag, the MTU.
const LONGEST: usize = 14 + 4 + 1500;

/// What becomes of a packet that is seen again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Way {
    /// By the device that a look-up gives.
    Routed,
    /// Back to where it came from.
    Answered,
    /// Through the node's stack, to a pod.
    Forwarded,
    /// Out by the device whose egress it was at.
    Out,
}

/// By which device a destination is reached.
fn device(address: Address) -> u32 {
    for at in [&V4, &V6] {
        for (pod, device) in [(at.pod_a, POD_A), (at.pod_b, POD_B)] {
            if Address::from(pod) == address {
                return device;
            }
        }
    }
    UPLINK
}

fn is_own(given: &Given, address: Address) -> bool {
    let in_maps = given.entries.iter().any(|entry| {
        matches!(entry, Entry::Address(own, flags) if *own == address && flags & address_flags::NODE != 0)
    });
    let of_node = [&V4, &V6]
        .into_iter()
        .any(|at| [at.node, at.node_also].map(Address::from).contains(&address));
    in_maps || of_node
}

/// What should come out, where, and how it gets there; `None`: nothing that is looked for.
fn expected(row: &Row, step: &Step) -> Option<(Way, u32, Vec<u8>)> {
    use Counter::{
        AnsweredTimeExceeded, AnsweredTooBig, FlowForwarded, FlowOpened, FlowRelated, FlowReplied,
        RejectedNoBackend, RejectedNoFlow, RejectedUnknownPort,
    };
    let translated = [FlowOpened, FlowForwarded, FlowReplied, FlowRelated];
    let answered = [
        AnsweredTimeExceeded,
        AnsweredTooBig,
        RejectedNoBackend,
        RejectedNoFlow,
        RejectedUnknownPort,
    ];
    let frame = step.out.bytes();
    let Read::Whole(layout) = read(&frame, false) else {
        return None;
    };
    let inbound = matches!(step.hook, DeviceHook::NodeIngress | DeviceHook::PodIngress);
    let counter = step.counter?;
    let own = is_own(&row.given, layout.destination);
    match step.verdict {
        Verdict::Redirect if answered.contains(&counter) && inbound => {
            Some((Way::Answered, step.device, leaving(frame)))
        }
        Verdict::Redirect if translated.contains(&counter) && !own => {
            Some((Way::Routed, device(layout.destination), leaving(frame)))
        }
        Verdict::On if translated.contains(&counter) && !inbound => Some((Way::Out, step.device, frame)),
        Verdict::On if translated.contains(&counter) && !own => {
            let device = device(layout.destination);
            let hops = frame[layout.ip + if layout.v4 { 8 } else { 7 }];
            // What the stack has something to say to is not looked at: wrong checksums, options, the last hop, its own address as a source, tags of
            // which it has no device.
            let plain = step.checked
                && layout.ip == 14
                && layout.payload == 14 + if layout.v4 { 20 } else { 40 }
                && hops > 1
                && !is_own(&row.given, layout.source);
            (device != UPLINK && plain).then(|| {
                let mut next = leaving(hop(frame, layout.ip, layout.v4));
                next.truncate(layout.end);
                (Way::Forwarded, device, next)
            })
        }
        _ => None,
    }
}

/// One hop further.
fn hop(mut frame: Vec<u8>, ip: usize, v4: bool) -> Vec<u8> {
    if v4 {
        frame[ip + 8] -= 1;
        // RFC 1624: of the word that has become less by 0x0100.
        let sum = u32::from(u16::from_be_bytes([frame[ip + 10], frame[ip + 11]])) + 0x0100;
        let sum = (sum & 0xffff) + (sum >> 16);
        frame[ip + 10..ip + 12].copy_from_slice(&(sum as u16).to_be_bytes());
    } else {
        frame[ip + 7] -= 1;
    }
    frame
}

/// Plays all rows that can be, with whole checksums or with such as are left to the device; how many packets went which way, and
/// how many of them had a tag.
fn play(left_to_device: bool) -> (BTreeMap<Way, usize>, usize) {
    let mut wire = Wire::new();
    let (mut ways, mut tagged) = (BTreeMap::new(), 0);
    let mut wrong = Vec::new();
    'rows: for row in rows::all() {
        // Segments, and more than a device takes, are a device's own affair.
        let plain = row.steps.iter().all(|step| {
            let frame = step.packet.bytes();
            step.gso_size == 0 && frame.len() <= LONGEST
        });
        if !plain || !row.steps.iter().any(|step| expected(&row, step).is_some()) {
            continue;
        }
        let scene = wire.stage.set(&row.given).expect("the maps are filled");
        wire.drain();
        for step in &row.steps {
            let frame = step.packet.bytes();
            let wanted = expected(&row, step);
            let whole = Wired { frame, offload: None };
            let wired = if left_to_device {
                // An answer quotes what came, which is half a checksum then.
                let half = partial(&whole.frame).filter(|_| !matches!(wanted, Some((Way::Answered, ..))));
                let Some(half) = half else { continue 'rows };
                half
            } else {
                whole
            };
            wire.send(step.hook, step.device, &wired);
            let Some((way, device, frame)) = wanted else {
                continue;
            };
            match wire.expect(device, &frame) {
                Ok(_) if step.checked && check(&frame).is_err() => {
                    wrong.push(format!("{}: came out, and is not whole", row.sentence));
                }
                Ok(_) => {
                    *ways.entry(way).or_default() += 1;
                    tagged += usize::from(step.packet.network_offset() > 14);
                }
                Err(others) => {
                    let others = if others.is_empty() { "nothing" } else { &others };
                    wrong.push(format!(
                        "{}\n  {way:?} by {device}: expected {frame:02x?}\n  found {others}",
                        row.sentence
                    ));
                }
            }
            if wrong.len() > 5 {
                break 'rows;
            }
        }
        drop(scene);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{ways:?}, {tagged} of them with a tag");
    (ways, tagged)
}

#[test]
fn rows_come_out_where_they_should_and_whole() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let (ways, tagged) = play(false);
    assert!(tagged >= 8, "only {tagged} packets had a tag");
    for (way, least) in [
        (Way::Routed, 100),
        (Way::Answered, 50),
        (Way::Forwarded, 50),
        (Way::Out, 50),
    ] {
        assert!(
            ways.get(&way).is_some_and(|times| *times >= least),
            "{way:?}: {ways:?}"
        );
    }
}

#[test]
fn a_checksum_that_is_left_to_the_device_is_right_when_that_has_completed_it() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let (ways, _) = play(true);
    for (way, least) in [(Way::Routed, 50), (Way::Forwarded, 20), (Way::Out, 20)] {
        assert!(
            ways.get(&way).is_some_and(|times| *times >= least),
            "{way:?}: {ways:?}"
        );
    }
}
