//! ICMP errors that say that a packet is too big are dropped where they come to the node.
//!
//! The bug of an agent that leaves ICMP to a firewall, or takes it as part of no connection: clients and backends whose
//! path is narrower than their own link go on to send what does not arrive.

use std::collections::BTreeSet;

use lb_loader::{CraftedHook, DeviceKind, Direction, LoaderError, attach_tcx, instruction, load_crafted};
use reference_agent::datapath::Datapath;

use crate::datapath_decorator::{Flaw, Flawed};

/// The production agent's datapath; `before` is called with each device of the node before its programs are attached.
pub fn too_big_dropped<D: Datapath, B: FnMut(u32) -> Result<(), LoaderError> + Send>(
    inner: D,
    before: B,
) -> Flawed<D, TooBigDropped<B>> {
    Flawed::new(
        inner,
        TooBigDropped {
            before,
            devices: BTreeSet::new(),
        },
    )
}

/// The flaw.
#[derive(Debug)]
pub struct TooBigDropped<B> {
    before: B,
    devices: BTreeSet<u32>,
}

impl<D: Datapath, B: FnMut(u32) -> Result<(), LoaderError> + Send> Flaw<D> for TooBigDropped<B> {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn attach_device(&mut self, inner: &mut D, device: u32, kind: DeviceKind) -> Result<(), LoaderError> {
        if kind == DeviceKind::Node && self.devices.insert(device) {
            (self.before)(device)?;
        }
        inner.attach_device(device, kind)
    }
}

/// Attaches a program that drops them at a device's ingress; everything else goes on to the programs after it.
///
/// # Errors
/// The kernel returns an error.
pub fn drop_at(device: u32) -> Result<(), LoaderError> {
    const HALF: u8 = 0x28;
    const BYTE: u8 = 0x30;
    const UNLESS: u8 = 0x55;
    let load = |size, at| instruction(size, 0, 0, 0, at);
    let unless = |value, skipped| instruction(UNLESS, 0, 0, skipped, value);
    let instructions = [
        // r6 = the packet
        instruction(0xbf, 6, 1, 0, 0),
        // IPv4, ICMP, fragmentation needed
        load(HALF, 12),
        unless(0x0800, 5),
        load(BYTE, 23),
        unless(1, 8),
        load(HALF, 34),
        unless(0x0304, 6),
        instruction(0x05, 0, 0, 7, 0),
        // IPv6, ICMPv6, packet too big
        unless(0x86dd, 4),
        load(BYTE, 20),
        unless(58, 2),
        load(BYTE, 54),
        instruction(0x15, 0, 0, 2, 2),
        // TCX_NEXT
        instruction(0xb7, 0, 0, 0, -1),
        instruction(0x95, 0, 0, 0, 0),
        // TCX_DROP
        instruction(0xb7, 0, 0, 0, 2),
        instruction(0x95, 0, 0, 0, 0),
    ];
    let program = load_crafted("too_big_dropped", CraftedHook::Device, &instructions)?;
    attach_tcx(device, Direction::Ingress, &program)
}
