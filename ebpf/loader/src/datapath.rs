//! The datapath of one node: maps, programs, links.

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Mutex, PoisonError},
};

use nix::fcntl::Flock;

use crate::{
    AttachedDevice, Attachment, DeviceAttachment, DeviceHook, DeviceId, DeviceKind, DeviceMode, Direction,
    Evicted, Filesystem, HeldProgram, Hook, Inventory, LoaderError, Manner, MapError, MapName, Maps, Options,
    Ownership, Place,
    attachment::{attachments, is_at},
    cgroup::Cgroup,
    device::{self, attach::Attaching},
    environment, evict,
    inventory::{self, cgroups::Hierarchy, programs::Owner},
    leftovers,
    map::{
        Barrier, carry,
        pins::{self, Pins},
    },
    node,
    object::{self, Programs},
    sys::{
        self, cgroup as bpf,
        link::{self, Link, Target},
    },
};

/// What [`Datapath::attach`] has done at one hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attached {
    /// The hook.
    pub hook: Hook,
    /// Our program that runs there now.
    pub program_id: u32,
    /// The link that attaches it.
    pub link_id: u32,
    /// `true`: the link was there, and was switched to this program without a gap.
    pub updated: bool,
}

/// Maps and programs of one node, held by one process at a time.
///
/// In this order: [`open`](Self::open), fill [`maps`](Self::maps), [`attach`](Self::attach), then
/// [`evict`](crate::evict) what earlier loads have left ([`leftovers`](Self::leftovers)).
/// Dropping it leaves everything running: links and maps are pinned.
#[derive(Debug)]
pub struct Datapath {
    pins: Pins,
    cgroup: Cgroup,
    maps: Maps,
    adopted: bool,
    barrier: Barrier,
    programs: Programs,
    /// Held beside their pins, so that removing those does not detach.
    links: Vec<OwnedFd>,
    mode: DeviceMode,
    /// Likewise, by index of the device.
    device_links: HashMap<(u32, Direction), OwnedFd>,
    /// What was seen of all programs on the machine.
    seen: Mutex<inventory::programs::Programs>,
    hierarchy: Hierarchy,
    _lock: Flock<File>,
}

impl Datapath {
    /// Adopts the pinned maps, or creates a set, and loads the socket programs against it; the packet programs are
    /// loaded when the first device is attached. Attaches nothing.
    ///
    /// Maps are adopted if type, key size, value size, capacity, flags and ABI version are right; FLOWS with any
    /// capacity within its bounds, so that [`Options::flows`] decides for new sets only. CONFIG is written as the
    /// options say, in either case. Otherwise a
    /// new set is made beside the old one, which the attached programs keep using until [`attach`](Self::attach).
    ///
    /// # Errors
    /// [`LoaderError::Privileges`], [`LoaderError::WrongFilesystem`] and [`LoaderError::Busy`] before anything is
    /// touched; others may leave pins, which the next call puts in order.
    pub fn open(options: &Options) -> Result<Self, LoaderError> {
        environment::expect_privileges()?;
        environment::expect_filesystem(&options.bpffs, Filesystem::Bpf)?;
        let cgroup = Cgroup::open(&options.cgroup)?;
        let (config, flows) = (node::config(&options.node)?, node::flows(options.flows)?);
        let pins = Pins::new(&options.bpffs);
        let lock = environment::lock(pins.root())?;
        pins.create()?;
        pins.recover()?;
        pins.sweep_devices()?;
        let unusable = pins::inspect(&pins.maps()).err();
        let (folder, programs) = match &unusable {
            None => (pins.maps(), object::load(&pins.maps(), flows)?),
            Some(why) => {
                tracing::info!(folder = %pins.maps().display(), %why, "the pinned maps are not adopted");
                let next = pins.begin_next()?;
                let programs = object::load(&next, flows)?;
                pins.finish_next()?;
                pins::inspect(&next).map_err(|why| LoaderError::Incomplete {
                    what: format!("fitting maps: {why}"),
                })?;
                // With nothing to replace, nothing has to wait for the programs.
                if pins.maps().exists() {
                    (next, programs)
                } else {
                    pins.commit_next()?;
                    (pins.maps(), programs)
                }
            }
        };
        let maps = Maps::open(&folder)?;
        maps.config.put(&config)?;
        Ok(Self {
            maps,
            adopted: unusable.is_none(),
            barrier: Barrier::new()?,
            programs,
            links: Vec::new(),
            mode: options.devices,
            device_links: HashMap::new(),
            seen: Mutex::default(),
            hierarchy: Hierarchy::of(&options.cgroup)?,
            pins,
            cgroup,
            _lock: lock,
        })
    }

    /// Whether the maps are those of an earlier start, with their contents.
    pub const fn adopted(&self) -> bool {
        self.adopted
    }

    /// The maps.
    pub const fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The socket programs that were loaded, attached or not.
    pub fn programs(&self) -> impl Iterator<Item = (Hook, &HeldProgram)> {
        Hook::ALL.into_iter().zip(&self.programs.sockets)
    }

    /// The packet programs that were loaded: those of the kinds of devices that have been attached, mostly.
    pub fn device_programs(&self) -> impl Iterator<Item = (DeviceHook, &HeldProgram)> {
        self.programs.devices()
    }

    /// A packet program, loaded now if it was not yet; attached or not.
    pub fn device_program(&mut self, hook: DeviceHook) -> Result<&HeldProgram, LoaderError> {
        self.programs.load_device(hook)?;
        self.programs.device(hook)
    }

    /// Returns when no program still runs that began before the call: an RCU grace period, tens of milliseconds.
    pub fn barrier(&self) -> Result<(), MapError> {
        self.barrier.wait()
    }

    /// Attaches the programs to the cgroup, or switches the links of an earlier start to them without a gap; then
    /// drops the maps of another layout, if there were any, having given connections and clients with affinity the ids
    /// that their services and backends have now. So it comes after the maps are filled and the network devices
    /// attached, or flows over UDP choose their backends again. Idempotent.
    ///
    /// # Errors
    /// [`LoaderError::Occupied`] if a program that is not ours was attached in a way that forbids others.
    pub fn attach(&mut self) -> Result<Vec<Attached>, LoaderError> {
        let mut links = Vec::new();
        let mut attached = Vec::new();
        for (hook, program) in Hook::ALL.into_iter().zip(&self.programs.sockets) {
            let (link, updated) = self.attach_one(hook, program)?;
            let link_id = describe(hook, &link)?.id;
            links.push(link);
            attached.push(Attached {
                hook,
                program_id: program.id(),
                link_id,
                updated,
            });
        }
        self.links = links;
        if self.pins.maps_next().exists() {
            let affinity = carry::copy_affinity(&self.pins.maps(), &self.maps)?;
            let flows = carry::renumber_flows(&self.maps)?;
            tracing::info!(affinity, flows, "took over from the set of maps that is replaced");
            self.pins.commit_next()?;
        }
        Ok(attached)
    }

    /// What is attached to our hooks at the cgroup itself, and whose it is; in the order of [`Hook::ALL`], then
    /// of running.
    pub fn scan(&self) -> Result<Vec<Attachment>, LoaderError> {
        attachments(&self.cgroup, &self.programs.ids())
    }

    /// What earlier loads of ours have left running for this node: at any cgroup, shown by a mount or not, removed or
    /// not; at any device; and programs that are attached where nobody can look, which are [`disarm`](crate::disarm)ed.
    /// Attachments are [`Ownership::Earlier`], for [`evict`](crate::evict). Pins and holders are not looked for.
    ///
    /// Cheap enough for every second while nothing of ours is loaded but this.
    pub fn leftovers(&self) -> Result<Inventory, LoaderError> {
        let owner = Owner {
            programs: self.programs.ids().into_iter().collect(),
            meta: None,
            namespace: node::namespace_cookie()?,
        };
        let node = leftovers::Node {
            hierarchy: &self.hierarchy,
            owner: &owner,
            meta: Some(self.programs.map_id(MapName::Meta)?),
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        node.leftovers(&mut seen)
    }

    /// Attaches the programs of a kind of device to one, or switches the links or filters of an earlier start to them
    /// without a gap. Idempotent; a device that has become one of the other kind gets the other programs.
    ///
    /// A device that goes takes its attachments with it. One that comes under its name or index is another one, and is
    /// attached anew.
    ///
    /// # Errors
    /// [`LoaderError::NoDevice`], [`LoaderError::NotEthernet`].
    pub fn attach_device<'a>(
        &mut self,
        device: impl Into<DeviceId<'a>>,
        kind: DeviceKind,
    ) -> Result<[AttachedDevice; 2], LoaderError> {
        let mut netlink = device::netlink()?;
        let device = device::find(&mut netlink, device.into())?;
        self.forget_gone()?;
        let [first, second] = kind.hooks();
        self.programs.load_device(first)?;
        self.programs.load_device(second)?;
        let mut attach = |hook: DeviceHook| {
            let attaching = Attaching {
                netlink: &mut netlink,
                pins: &self.pins,
                device: &device,
                hook,
                program: self.programs.device(hook)?,
            };
            let (attached, link) = attaching.attach(self.mode)?;
            let key = (device.index, hook.direction());
            match link {
                Some(link) => self.device_links.insert(key, link),
                None => self.device_links.remove(&key),
            };
            Ok::<_, LoaderError>(attached)
        };
        Ok([attach(first)?, attach(second)?])
    }

    /// Ends every attachment of ours, of any load, at a device, and says what was ended; a device that is not there
    /// has none.
    pub fn detach_device<'a>(
        &mut self,
        device: impl Into<DeviceId<'a>>,
    ) -> Result<Vec<DeviceAttachment>, LoaderError> {
        let mut netlink = device::netlink()?;
        self.forget_gone()?;
        let device = match device::find(&mut netlink, device.into()) {
            Err(LoaderError::NoDevice { .. }) => return Ok(Vec::new()),
            device => device?,
        };
        let mut ended = Vec::new();
        for attachment in device::scan::at(&mut netlink, [device.clone()], Some(&self.programs))? {
            if attachment.ownership != Ownership::Foreign && device::scan::end(&mut netlink, &attachment)? {
                ended.push(attachment);
            }
        }
        for direction in Direction::ALL {
            self.device_links.remove(&(device.index, direction));
            self.pins.unpin(&self.pins.device(device.index, direction))?;
        }
        Ok(ended)
    }

    /// What is attached to the devices of the calling thread's network namespace, and whose it is; by device, then by
    /// direction, then in the order of running.
    pub fn scan_devices(&self) -> Result<Vec<DeviceAttachment>, LoaderError> {
        device::scan::attachments(&mut device::netlink()?, Some(&self.programs))
    }

    /// Lets go of the links of devices that are gone.
    fn forget_gone(&mut self) -> Result<(), LoaderError> {
        let mut gone = Vec::new();
        for (key, link) in &self.device_links {
            let link = link::describe(link.as_fd())
                .map_err(LoaderError::kernel("look at the link of a network device"))?;
            if matches!(link.target, Target::Device { ifindex: 0, .. }) {
                gone.push(*key);
            }
        }
        for (index, direction) in gone {
            self.device_links.remove(&(index, direction));
            self.pins.unpin(&self.pins.device(index, direction))?;
        }
        Ok(())
    }

    /// The link that attaches a program; `true`: it was there before.
    fn attach_one(&self, hook: Hook, program: &HeldProgram) -> Result<(OwnedFd, bool), LoaderError> {
        self.pins.recover_link(&self.pins.link(hook))?;
        if let Some(link) = self.adopt_link(hook)? {
            link::update(link.as_fd(), program.as_fd()).map_err(LoaderError::kernel(format!(
                "switch the link of {hook} to program {}",
                program.id()
            )))?;
            return Ok((link, true));
        }
        let link = self.create_link(hook, program)?;
        self.pins.pin_link(&self.pins.link(hook), link.as_fd())?;
        Ok((link, false))
    }

    /// The pinned link of a hook, if it is attached to this cgroup.
    fn adopt_link(&self, hook: Hook) -> Result<Option<OwnedFd>, LoaderError> {
        let path = self.pins.link(hook);
        let link = match sys::open_pinned(&path, 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            link => link.map_err(LoaderError::path("open the pinned link", path))?,
        };
        Ok(is_at(&describe(hook, &link)?, &self.cgroup, hook).then_some(link))
    }

    /// A new link. If it is not let in, what an earlier load of ours has attached the legacy way, there or above,
    /// without ALLOW_MULTI, is taken away first.
    fn create_link(&self, hook: Hook, program: &HeldProgram) -> Result<OwnedFd, LoaderError> {
        let create = || bpf::link_create(self.cgroup.as_fd(), program.as_fd(), hook.attach_type());
        let refused = match create() {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => error,
            link => {
                return link.map_err(LoaderError::kernel(format!(
                    "attach {hook} to {}",
                    self.cgroup.path().display()
                )));
            }
        };
        let mut evicted = false;
        for found in self.leftovers()?.attachments {
            let in_the_way = matches!(
                (&found.place, &found.manner),
                (Place::Cgroup { attach_type, .. }, Manner::Legacy { .. }) if *attach_type == hook.attach_type()
            );
            evicted |= in_the_way && evict(&found, false)? == Evicted::Detached;
        }
        let occupied = |source| LoaderError::Occupied {
            hook,
            cgroup: self.cgroup.path().to_owned(),
            others: bpf::query(self.cgroup.as_fd(), hook.attach_type(), true)
                .map_or_else(|_| Vec::new(), |attached| attached.programs),
            source,
        };
        if evicted {
            create().map_err(occupied)
        } else {
            Err(occupied(refused))
        }
    }
}

/// What is pinned or was made as the link of a hook.
fn describe(hook: Hook, link: &OwnedFd) -> Result<Link, LoaderError> {
    link::describe(link.as_fd()).map_err(LoaderError::kernel(format!("look at the link of {hook}")))
}
