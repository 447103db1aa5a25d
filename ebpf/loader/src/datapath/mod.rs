//! The datapath of one node: maps, programs, links; `devices` has what concerns network devices.

mod devices;

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use lb_abi::{Config, Meta};
use nix::fcntl::Flock;

use crate::{
    Attachment, DeviceHook, DeviceMode, Direction, Filesystem, HeldProgram, Hook, LoaderError, MapError,
    MapName, Maps, Options,
    attachment::{attachments, is_at},
    cgroup::Cgroup,
    connections, environment,
    map::{
        Barrier, compatibility, migrate,
        pins::{Next, Pins},
    },
    node_config,
    object::{self, Programs},
    sys::{
        self, cgroup as bpf,
        link::{self, Link},
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

/// A set of maps that this one takes the place of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replaced {
    /// How it differs: another ABI version, another layout, not whole.
    pub why: String,
    /// Maps of it whose contents can't be taken over, of those that programs write and clients would miss: CONNTRACK,
    /// SOCKET_REVNAT, SOCKET_BACKEND, FRAGMENTS.
    pub lost: Vec<MapName>,
}

/// Maps and programs of one node, held by one process at a time.
///
/// In this order: [`open`](Self::open), fill [`maps`](Self::maps), [`attach`](Self::attach); then the doctor evicts what
/// earlier loads have left (`doctor::Leftovers`).
/// Dropping it leaves everything running: links and maps are pinned.
#[derive(Debug)]
pub struct Datapath {
    pins: Pins,
    cgroup: Cgroup,
    maps: Maps,
    adopted: bool,
    first: bool,
    replaced: Option<Replaced>,
    barrier: Barrier,
    programs: Programs,
    /// Held beside their pins, so that removing those does not detach.
    links: Vec<OwnedFd>,
    mode: DeviceMode,
    /// Likewise, by index of the device.
    device_links: HashMap<(u32, Direction), OwnedFd>,
    _lock: Flock<File>,
}

impl Datapath {
    /// Adopts the pinned maps, or creates a set, and loads the socket programs against it; the packet programs are
    /// loaded when the first device is attached. Attaches nothing.
    ///
    /// Maps are adopted if type, key size, value size, capacity, flags and ABI version are right; CONNTRACK, CHOSEN, SOCKET_REVNAT and
    /// SOCKET_BACKEND with any capacity within their bounds, so that [`Options::flows`] decides for new maps only. CONFIG is
    /// written as the options say, in either case; but addresses of the node that they do not give stay as adopted maps have them, as
    /// the attached programs send packets from these. Otherwise a new set is made beside the old one, which the attached
    /// programs keep using until [`attach`](Self::attach); it takes their connections over, by CONNTRACK itself, from the pinned
    /// set or, where that has none that fits, from the programs at this node's devices.
    ///
    /// # Errors
    /// [`LoaderError::Privileges`], [`LoaderError::WrongFilesystem`] and [`LoaderError::Busy`] before anything is
    /// touched; others may leave pins, which the next call puts in order.
    pub fn open(options: &Options) -> Result<Self, LoaderError> {
        environment::expect_privileges()?;
        environment::expect_filesystem(&options.bpffs, Filesystem::Bpf)?;
        let cgroup = Cgroup::open(&options.cgroup)?;
        let (config, flows) = (
            node_config::config(&options.node)?,
            node_config::flows(options.flows)?,
        );
        let pins = Pins::new(&options.bpffs);
        let lock = environment::lock(pins.root())?;
        pins.create()?;
        pins.recover()?;
        pins.sweep_devices()?;
        let unusable = compatibility::inspect(&pins.maps()).err();
        let (mut replaced, mut first) = (None, false);
        let (folder, programs) = match &unusable {
            None => (
                pins.maps(),
                object::load(&pins.maps(), flows, options.sockets, || Ok(()))?,
            ),
            Some(why) => {
                tracing::info!(folder = %pins.maps().display(), %why, "the pinned maps are not adopted");
                let Next {
                    folder: next,
                    lost,
                    from_programs,
                } = pins.begin_next(connections::in_use)?;
                if !lost.is_empty() {
                    tracing::warn!(
                        ?lost,
                        "what these maps have noted of sockets and connections can't be taken over: sockets show their \
                         backends instead of their services, connections of clients outside begin anew"
                    );
                }
                replaced = pins.maps().exists().then(|| Replaced {
                    why: why.to_string(),
                    lost,
                });
                // The doctor, and other agents, remember of a program whose it is: META must say so before they can see
                // it.
                let programs = object::load(&next, flows, options.sockets, || {
                    pins.finish_next()?;
                    compatibility::inspect(&next).map_err(|why| LoaderError::Incomplete {
                        what: format!("fitting maps: {why}"),
                    })
                })?;
                // With nothing to replace, nothing has to wait for the programs.
                if from_programs || pins.maps().exists() {
                    (next, programs)
                } else {
                    first = true;
                    pins.commit_next()?;
                    (pins.maps(), programs)
                }
            }
        };
        let maps = Maps::open(&folder)?;
        let there = if unusable.is_none() {
            maps.config.get()?
        } else {
            Config::NONE
        };
        maps.config
            .put(&node_config::keep_addresses(config, &options.node, &there))?;
        Ok(Self {
            maps,
            adopted: unusable.is_none(),
            first,
            replaced,
            barrier: Barrier::new()?,
            programs,
            links: Vec::new(),
            mode: options.devices,
            device_links: HashMap::new(),
            pins,
            cgroup,
            _lock: lock,
        })
    }

    /// Whether the maps are those of an earlier start, with their contents.
    pub const fn adopted(&self) -> bool {
        self.adopted
    }

    /// Whether the maps are new and take the place of none: no load of this agent was here that has left connections.
    pub const fn first(&self) -> bool {
        self.first
    }

    /// Of maps that were found and not adopted: why, and what of them is lost.
    pub const fn replaced(&self) -> Option<&Replaced> {
        self.replaced.as_ref()
    }

    /// The maps.
    pub const fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The socket programs that were loaded, attached or not: all, or none if [`Options::sockets`] says so.
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

    /// Attaches the programs to the cgroup, or switches the links of an earlier start to them without a gap; or, if there
    /// are none, lets go of those links. Then
    /// drops the maps of another layout, if there were any, having given connections and clients with affinity the ids
    /// that their services and backends have now. So it comes after the maps are filled and the network devices
    /// attached, or flows over UDP choose their backends again; of a [`first`](Self::first) set there are none yet, and sockets
    /// come first: a flow that a client's packets open before would meet what the same port connects to next. Idempotent; after an error, once more does what is left.
    ///
    /// # Errors
    /// [`LoaderError::Occupied`] if a program is attached there or above in a way that forbids others. It may be an earlier
    /// load's, which `doctor::Leftovers::attach` evicts.
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
        if self.programs.sockets.is_empty() {
            for hook in Hook::ALL {
                self.pins.unpin(&self.pins.link(hook))?;
            }
        }
        if self.pins.maps_next().exists() {
            let affinity = migrate::copy_affinity(&self.pins.maps(), &self.maps)?;
            let flows = migrate::renumber_flows(&self.maps)?;
            tracing::info!(affinity, flows, "took over from the set of maps that is replaced");
        }
        self.pins.commit_next()?;
        for folder in self.pins.remove_others()? {
            tracing::info!(folder = %folder.display(), "removed what another version of this agent has pinned");
        }
        Ok(attached)
    }

    /// What is attached to our hooks at the cgroup itself, and whose it is; in the order of [`Hook::ALL`], then
    /// of running.
    pub fn scan(&self) -> Result<Vec<Attachment>, LoaderError> {
        attachments(&self.cgroup, &self.programs.ids())
    }

    /// The cgroup whose sockets the socket programs are for.
    pub const fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Writes META again if another program has overwritten it: without its magic, the programs leave everything alone. A META by which the
    /// maps were taken out of use ([`retire`](crate::retire)) stays. `true`: it was written.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn restore_meta(&self) -> Result<bool, LoaderError> {
        let map = self.programs.map(MapName::Meta)?;
        let key = 0_u32;
        let mut found = Meta {
            magic: [0; 8],
            abi: 0,
            pad: 0,
        };
        // SAFETY: the sizes of META's key and value, which `Programs::map` has checked.
        unsafe { sys::map::lookup(map.as_fd(), &raw const key, &raw mut found) }
            .map_err(LoaderError::kernel("read META"))?;
        if found.magic == Meta::CURRENT.magic {
            return Ok(false);
        }
        let value = Meta::CURRENT;
        // SAFETY: as above.
        unsafe { sys::map::update(map.as_fd(), &raw const key, &raw const value) }
            .map_err(LoaderError::kernel("write META"))?;
        Ok(true)
    }

    /// The id of META, by which programs of this set of maps are known.
    pub fn meta_id(&self) -> Result<u32, LoaderError> {
        self.programs.map_id(MapName::Meta)
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

    fn create_link(&self, hook: Hook, program: &HeldProgram) -> Result<OwnedFd, LoaderError> {
        match bpf::link_create(self.cgroup.as_fd(), program.as_fd(), hook.attach_type()) {
            Err(source) if source.raw_os_error() == Some(libc::EPERM) => Err(LoaderError::Occupied {
                hook,
                cgroup: self.cgroup.to_string(),
                others: bpf::query(self.cgroup.as_fd(), hook.attach_type(), true)
                    .map_or_else(|_| Vec::new(), |attached| attached.programs),
                source,
            }),
            link => link.map_err(LoaderError::kernel(format!("attach {hook} to {}", self.cgroup))),
        }
    }
}

/// What is pinned or was made as the link of a hook.
fn describe(hook: Hook, link: &OwnedFd) -> Result<Link, LoaderError> {
    link::describe(link.as_fd()).map_err(LoaderError::kernel(format!("look at the link of {hook}")))
}
