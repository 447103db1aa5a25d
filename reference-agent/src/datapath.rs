//! The maps, and the programs at the node's cgroup and devices.
//!
//! [`Datapath`] is a seam: `chaos/mutants` puts its bugs around [`KernelDatapath`] there.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
};

use doctor::{Evicted, EvictionError, Found, Inventory, Leftovers, LooseProgram};
use lb_abi::{Address, AddressRange, Config, SERVICE_RANGES};
use lb_loader::{Attachment, Counts, DeviceKind, Hook, LoaderError, Options, Ownership};

use crate::endpoint_address::Range;
use crate::maps::{
    LbMaps, MapError,
    kernel::{KernelMaps, Shared},
};
use crate::udp::{Connections, KernelConnections};

/// Maps and hooks of one node.
pub trait Datapath: Send {
    /// Its maps.
    type Maps: LbMaps;

    /// The maps.
    fn maps(&self) -> Self::Maps;

    /// Flows and sockets, as the programs have recorded them.
    type Connections: Connections + 'static;

    /// The flows and sockets, for another thread.
    ///
    /// # Errors
    /// The kernel's error.
    fn connections(&self) -> Result<Self::Connections, LoaderError>;

    /// Whether the maps are those of an earlier start, with their contents.
    fn adopted(&self) -> bool;

    /// Whether the maps are new and replace no others: there is no connection of an earlier start.
    fn first(&self) -> bool;

    /// The programs' counters since the maps were made; `None`: there are none.
    ///
    /// # Errors
    /// The kernel's error.
    fn counts(&self) -> Result<Option<Counts>, MapError> {
        Ok(None)
    }

    /// Attaches the programs to the node's cgroup, or detaches those of an earlier start if socket programs are off.
    /// Idempotent.
    ///
    /// # Errors
    /// The kernel's error.
    fn attach(&mut self) -> Result<(), EvictionError>;

    /// Hooks of the cgroup whose program is not attached.
    ///
    /// # Errors
    /// The kernel's error.
    fn unattached(&self) -> Result<Vec<Hook>, LoaderError>;

    /// The configured addresses of the node from which the programs send packets to remote backends; an earlier start may
    /// have configured them.
    ///
    /// # Errors
    /// The kernel's error.
    fn addresses(&self) -> Result<(Option<Ipv4Addr>, Option<Ipv6Addr>), LoaderError>;

    /// Configures the addresses of the node from which packets to remote backends are sent. `None`: none of that family. What
    /// another program has changed in the configuration since is right again, too. Idempotent.
    ///
    /// # Errors
    /// The kernel's error.
    fn set_addresses(&mut self, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) -> Result<(), LoaderError>;

    /// Configures the ranges of cluster IPs, at most [`lb_abi::SERVICE_RANGES`]: addresses there that no Service has are
    /// refused. They stay when the agent ends. Idempotent.
    ///
    /// # Errors
    /// The kernel's error.
    fn set_service_ranges(&mut self, ranges: &[Range]) -> Result<(), LoaderError>;

    /// Attaches the programs of a kind to a network device, by its index, and replaces those of another kind. Idempotent.
    ///
    /// # Errors
    /// The kernel's error; [`LoaderError::NoDevice`]: the device is gone.
    fn attach_device(&mut self, device: u32, kind: DeviceKind) -> Result<(), LoaderError>;

    /// Ends every attachment of this agent, of any load, to a device. A missing device is no error.
    ///
    /// # Errors
    /// The kernel's error.
    fn detach_device(&mut self, device: u32) -> Result<(), LoaderError>;

    /// Devices with programs of this agent, of any load, and the kind of the programs; `None`: not all are of the current
    /// load.
    ///
    /// # Errors
    /// The kernel's error.
    fn devices(&self) -> Result<BTreeMap<u32, Option<DeviceKind>>, LoaderError>;

    /// Programs of other owners at the hooks of the cgroup, in the order of running.
    ///
    /// # Errors
    /// The kernel's error.
    fn foreign(&self) -> Result<Vec<Attachment>, LoaderError>;

    /// Leftovers of earlier loads that run for this node: at any cgroup, also hidden ones, at devices, or at places that
    /// can't be read.
    ///
    /// # Errors
    /// The kernel's error.
    fn leftovers(&self) -> Result<Inventory, LoaderError>;

    /// Evicts an attached leftover.
    ///
    /// # Errors
    /// What prevents it, and what to do.
    fn evict(&self, leftover: &Found) -> Result<(), EvictionError>;

    /// Disarms a leftover at a place that can't be read: it passes everything from then on.
    ///
    /// # Errors
    /// The kernel's error.
    fn disarm(&self, leftover: &LooseProgram) -> Result<(), EvictionError>;
}

/// Of a map that is not as this agent has written it.
const CHANGED: &str = "another program has changed a map; its entries are written again";

/// The datapath in the kernel.
#[derive(Debug)]
pub struct KernelDatapath {
    shared: Shared,
    leftovers: Leftovers,
    cgroup: PathBuf,
    adopted: bool,
    first: bool,
    /// What CONFIG must be.
    config: Config,
}

impl KernelDatapath {
    /// Opens the pinned maps, or makes new ones, and loads the programs. Attaches nothing.
    ///
    /// # Errors
    /// As [`lb_loader::Datapath::open`].
    pub fn open(options: &Options) -> Result<Self, LoaderError> {
        let datapath = lb_loader::Datapath::open(options)?;
        let (adopted, first) = (datapath.adopted(), datapath.first());
        let config = datapath.maps().config.get()?;
        Ok(Self {
            config,
            leftovers: Leftovers::of(&datapath)?,
            shared: Shared::new(datapath),
            cgroup: options.cgroup.clone(),
            adopted,
            first,
        })
    }

    /// Changes CONFIG, and writes all of it again if another program has changed it; and META.
    fn configure(&mut self, change: impl FnOnce(&mut Config)) -> Result<(), LoaderError> {
        let datapath = self.shared.lock();
        let table = &datapath.maps().config;
        let found = table.get()?;
        if found != self.config {
            tracing::warn!(map = "CONFIG", "{CHANGED}");
        }
        let mut config = self.config;
        change(&mut config);
        if found != config {
            table.put(&config)?;
        }
        self.config = config;
        if datapath.restore_meta()? {
            tracing::warn!(map = "META", "{CHANGED}");
        }
        Ok(())
    }
}

impl Datapath for KernelDatapath {
    type Maps = KernelMaps;
    type Connections = KernelConnections;

    fn maps(&self) -> KernelMaps {
        KernelMaps::new(self.shared.clone())
    }

    fn connections(&self) -> Result<KernelConnections, LoaderError> {
        Ok(KernelConnections::new(
            self.shared.lock().maps(),
            self.cgroup.clone(),
        )?)
    }

    fn adopted(&self) -> bool {
        self.adopted
    }

    fn first(&self) -> bool {
        self.first
    }

    fn counts(&self) -> Result<Option<Counts>, MapError> {
        Ok(Some(self.shared.lock().maps().counters()?))
    }

    fn attach(&mut self) -> Result<(), EvictionError> {
        for attached in self.leftovers.attach(&mut self.shared.lock())? {
            let lb_loader::Attached {
                hook,
                program_id,
                link_id,
                updated,
            } = attached;
            tracing::info!(%hook, program_id, link_id, updated, "attached");
        }
        Ok(())
    }

    fn unattached(&self) -> Result<Vec<Hook>, LoaderError> {
        let datapath = self.shared.lock();
        let attachments = datapath.scan()?;
        let ours = |hook: &Hook| {
            attachments
                .iter()
                .any(|found| found.hook == *hook && found.ownership == Ownership::Current)
        };
        let wanted = datapath.programs().map(|(hook, _)| hook);
        Ok(wanted.filter(|hook| !ours(hook)).collect())
    }

    fn addresses(&self) -> Result<(Option<Ipv4Addr>, Option<Ipv6Addr>), LoaderError> {
        let config = self.config;
        let v4 = match IpAddr::from(config.node_v4) {
            IpAddr::V4(v4) if !v4.is_unspecified() => Some(v4),
            _ => None,
        };
        let v6 = match IpAddr::from(config.node_v6) {
            IpAddr::V6(v6) if !v6.is_unspecified() => Some(v6),
            _ => None,
        };
        Ok((v4, v6))
    }

    fn set_addresses(&mut self, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) -> Result<(), LoaderError> {
        self.configure(|config| {
            config.node_v4 = v4.map_or(Address::UNSPECIFIED_V4, |v4| Address::v4(v4.octets()));
            config.node_v6 = v6.map_or(Address::UNSPECIFIED_V6, |v6| Address::v6(v6.octets()));
        })
    }

    fn set_service_ranges(&mut self, ranges: &[Range]) -> Result<(), LoaderError> {
        self.configure(|config| {
            config.service_ranges = [AddressRange::NONE; SERVICE_RANGES];
            for (place, range) in config.service_ranges.iter_mut().zip(ranges) {
                *place = AddressRange::new(range.address().into(), range.length());
            }
        })
    }

    fn attach_device(&mut self, device: u32, kind: DeviceKind) -> Result<(), LoaderError> {
        for attached in self.shared.lock().attach_device(device, kind)? {
            let lb_loader::AttachedDevice {
                hook,
                device,
                program_id,
                manner,
                updated,
            } = attached;
            tracing::info!(%hook, %device, program_id, ?manner, updated, "attached");
        }
        Ok(())
    }

    fn detach_device(&mut self, device: u32) -> Result<(), LoaderError> {
        for ended in self.shared.lock().detach_device(device)? {
            let lb_loader::DeviceAttachment {
                device,
                direction,
                program_id,
                ..
            } = ended;
            tracing::info!(%device, %direction, program_id, "detached");
        }
        Ok(())
    }

    fn devices(&self) -> Result<BTreeMap<u32, Option<DeviceKind>>, LoaderError> {
        let mut hooks: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for found in self.shared.lock().scan_devices()? {
            match found.ownership {
                Ownership::Foreign | Ownership::OtherNode => {}
                Ownership::Earlier => _ = hooks.entry(found.device.index).or_default(),
                Ownership::Current => hooks.entry(found.device.index).or_default().extend(found.hook),
            }
        }
        let of = |there: &[_]| {
            // The node's devices have the loopback device's program, too.
            [DeviceKind::Node, DeviceKind::Pod, DeviceKind::Loopback]
                .into_iter()
                .find(|kind| kind.hooks().iter().all(|hook| there.contains(hook)))
        };
        Ok(hooks
            .into_iter()
            .map(|(device, there)| (device, of(&there)))
            .collect())
    }

    fn foreign(&self) -> Result<Vec<Attachment>, LoaderError> {
        let attachments = self.shared.lock().scan()?;
        Ok(attachments
            .into_iter()
            .filter(|found| found.ownership == Ownership::Foreign)
            .collect())
    }

    fn leftovers(&self) -> Result<Inventory, LoaderError> {
        self.leftovers.find(&self.shared.lock())
    }

    fn evict(&self, leftover: &Found) -> Result<(), EvictionError> {
        match doctor::evict(leftover, false)? {
            Evicted::Detached | Evicted::Gone => Ok(()),
        }
    }

    fn disarm(&self, leftover: &LooseProgram) -> Result<(), EvictionError> {
        doctor::disarm(leftover).map(drop)
    }
}
