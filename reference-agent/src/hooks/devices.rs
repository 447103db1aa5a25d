//! Keeps the programs attached to the host's devices.
//!
//! The wanted devices come as a [`View`]. A new device is attached at once, so that a pod is served as soon as its device
//! exists. Each scan compares the kernel's attachments with the view, and repairs them. A device that disappears
//! meanwhile is no error: its view follows.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use doctor::{Found, Place};
use lb_loader::{DeviceKind, LoaderError};

use crate::{datapath::Datapath, endpoint_address::Family, host::View};

/// Most devices that `/readyz` names.
const NAMED: usize = 8;

/// The devices of one node.
#[derive(Debug, Default)]
pub(super) struct Devices {
    wanted: Option<Arc<View>>,
    /// Devices with programs, as far as is known.
    attached: BTreeMap<u32, DeviceKind>,
    /// Why programs are not attached, or not detached, by device.
    failed: BTreeMap<u32, String>,
    /// Why the last scan failed, or the node's addresses are not configured.
    error: Option<String>,
}

impl Devices {
    /// Takes the host's current devices. `false`: the view is the same as before.
    pub(super) fn set_view(&mut self, view: Arc<View>) -> bool {
        let new = self
            .wanted
            .as_ref()
            .is_none_or(|wanted| !Arc::ptr_eq(wanted, &view));
        self.wanted = Some(view);
        new
    }

    /// Attaches programs to new devices, and configures the node's addresses.
    pub(super) fn attach_new(&mut self, datapath: &mut impl Datapath) {
        let Some(view) = self.wanted.clone() else { return };
        self.failed.retain(|device, _| view.devices.contains_key(device));
        self.attached
            .retain(|device, _| view.devices.contains_key(device));
        if let Err(error) = configure_addresses(&view, datapath) {
            self.error = Some(format!("the programs are not told the node's addresses: {error}"));
        }
        for (device, name, kind) in in_order(&view) {
            if self.attached.get(&device) == Some(&kind) || self.failed.contains_key(&device) {
                continue;
            }
            match datapath.attach_device(device, kind) {
                Ok(()) => {
                    self.attached.insert(device, kind);
                }
                Err(error) if is_gone(&error) => {
                    tracing::debug!(device, name, "went before it was attached");
                }
                Err(error) => {
                    tracing::warn!(device, name, %error, "not attached to a device");
                    let failed = format!("not attached to device {name} ({device}): {error}");
                    self.failed.insert(device, failed);
                }
            }
        }
    }

    /// Compares the kernel's attachments with the wanted ones, and repairs them; what failed is tried again.
    pub(super) fn scan(&mut self, datapath: &mut impl Datapath) {
        let Some(view) = self.wanted.clone() else { return };
        self.failed.clear();
        self.error = None;
        let mut missing: Vec<u32> = Vec::new();
        match datapath.devices() {
            Ok(found) => {
                let is_missing = |device: &&u32| {
                    self.attached.contains_key(device) && found.get(device).is_none_or(Option::is_none)
                };
                missing.extend(view.devices.keys().filter(is_missing));
                for device in found.keys().filter(|device| !view.devices.contains_key(device)) {
                    self.detach(datapath, *device);
                }
                self.attached = found
                    .into_iter()
                    .filter_map(|(device, kind)| Some((device, kind?)))
                    .collect();
            }
            Err(error) => self.error = Some(format!("can't see what is attached to devices: {error}")),
        }
        self.attach_new(datapath);
        // A device that is gone has lost its programs, too, and the view may still have it: it is neither attached again
        // nor failed.
        let exists = |device: &u32| self.attached.contains_key(device) || self.failed.contains_key(device);
        for device in missing.into_iter().filter(exists) {
            tracing::warn!(
                device,
                "programs were detached from a device, and not by this agent"
            );
        }
    }

    /// Whether a leftover stays for now, because an old program is better than none: the devices are not known yet, or
    /// attaching to its device has failed.
    pub(super) fn keeps_leftover(&self, found: &Found) -> bool {
        match &found.place {
            Place::Device {
                index, name: Some(_), ..
            } => self
                .wanted
                .as_ref()
                .is_none_or(|view| view.devices.contains_key(index) && self.failed.contains_key(index)),
            _ => false,
        }
    }

    /// Why devices are not served, one sentence each.
    pub(super) fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<String> = self
            .error
            .iter()
            .chain(self.failed.values().take(NAMED))
            .cloned()
            .collect();
        if self.failed.len() > NAMED {
            reasons.push(format!("nor to {} more devices", self.failed.len() - NAMED));
        }
        reasons
    }

    /// Those of them that are about the node's own devices.
    pub(super) fn reasons_of_node(&self) -> impl Iterator<Item = String> {
        let of_node = |device| {
            let wanted = self.wanted.as_ref();
            wanted.is_some_and(|view| matches!(view.devices.get(device), Some((_, DeviceKind::Node))))
        };
        let failed = self.failed.iter().filter(move |(device, _)| of_node(device));
        failed.map(|(_, why)| why.clone())
    }

    fn detach(&mut self, datapath: &mut impl Datapath, device: u32) {
        if let Err(error) = datapath.detach_device(device)
            && !is_gone(&error)
        {
            let failed = format!("not detached from device {device}, which is not served any more: {error}");
            self.failed.insert(device, failed);
        }
    }
}

/// Devices in the order in which they are attached: the node's own ones first. Each takes the kernel some 20 ms, and
/// clients outside must not wait for the devices of all pods.
fn in_order(view: &View) -> impl Iterator<Item = (u32, &str, DeviceKind)> {
    let of_node = |wanted: bool| {
        let devices = view.devices.iter();
        devices.filter(move |(_, (_, kind))| (*kind != DeviceKind::Pod) == wanted)
    };
    of_node(true)
        .chain(of_node(false))
        .map(|(device, (name, kind))| (*device, name.as_str(), *kind))
}

/// Configures the node's addresses. While the Node object is not known, an address that an earlier start has configured
/// stays, if the host still has it: a guess must not break connections from that address.
fn configure_addresses(view: &View, datapath: &mut impl Datapath) -> Result<(), LoaderError> {
    let (before_v4, before_v6) = datapath.addresses()?;
    let stays = |family, address| view.guessed.contains(&family) && view.addresses.contains(&address);
    let v4 = before_v4.filter(|&before| stays(Family::V4, IpAddr::V4(before)));
    let v6 = before_v6.filter(|&before| stays(Family::V6, IpAddr::V6(before)));
    datapath.set_addresses(v4.or(view.v4), v6.or(view.v6))
}

/// Whether the device has disappeared.
fn is_gone(error: &LoaderError) -> bool {
    match error {
        LoaderError::NoDevice { .. } => true,
        LoaderError::Kernel { source, .. } => {
            matches!(
                source.raw_os_error().map(nix::errno::Errno::from_raw),
                Some(nix::errno::Errno::ENODEV | nix::errno::Errno::ENXIO)
            )
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use doctor::{CgroupState, Manner, ProgramDescription};
    use lb_loader::{Direction, Layer, Ownership};

    use super::*;

    /// A leftover.
    fn left(place: Place) -> Found {
        Found {
            place,
            order: 0,
            program: ProgramDescription {
                id: 7,
                name: "node_ingress".to_owned(),
                program_type: 3,
                type_name: "sched_cls",
                tag: [0; 8],
                loaded_at: Duration::ZERO,
                uid: 0,
                maps: Vec::new(),
                pinned_at: Vec::new(),
                held_by: Vec::new(),
            },
            manner: Manner::Legacy { flags: 0 },
            ownership: Ownership::Earlier,
        }
    }

    fn at_device(index: u32) -> Found {
        left(Place::Device {
            index,
            name: Some("uplink".to_owned()),
            layer: Layer::Tcx,
            direction: Direction::Ingress,
        })
    }

    #[test]
    fn devices_of_the_node_come_before_those_of_pods() {
        let device = |index: u32, kind| (index, (format!("d{index}"), kind));
        let view = View {
            devices: [
                device(2, DeviceKind::Pod),
                device(3, DeviceKind::Node),
                device(4, DeviceKind::Pod),
                device(39, DeviceKind::Node),
            ]
            .into(),
            ..View::default()
        };
        let order: Vec<u32> = in_order(&view).map(|(device, ..)| device).collect();
        assert_eq!(order, [3, 39, 2, 4]);
    }

    #[test]
    fn a_leftover_at_a_device_stays_until_the_programs_are_attached() {
        let at_cgroup = left(Place::Cgroup {
            id: 1,
            path: None,
            state: CgroupState::Hidden,
            attach_type: 10,
            attach_name: "connect4",
        });
        let mut devices = Devices::default();
        assert!(
            devices.keeps_leftover(&at_device(2)),
            "the devices are not known yet"
        );
        assert!(!devices.keeps_leftover(&at_cgroup));
        devices.wanted = Some(Arc::new(View::default()));
        assert!(!devices.keeps_leftover(&at_device(2)));
        devices.failed.insert(2, "not detached".to_owned());
        assert!(
            !devices.keeps_leftover(&at_device(2)),
            "the view does not have it"
        );
        devices.wanted = Some(Arc::new(View {
            devices: [2, 3]
                .map(|index| (index, ("uplink".to_owned(), DeviceKind::Node)))
                .into(),
            ..View::default()
        }));
        assert!(devices.keeps_leftover(&at_device(2)) && !devices.keeps_leftover(&at_device(3)));
        assert!(!devices.keeps_leftover(&at_cgroup));
    }
}
