//! The datapath of one node: maps, programs, links.

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use nix::fcntl::Flock;

use crate::{
    Attachment, DeviceHook, Filesystem, HeldProgram, Hook, LoaderError, MapError, Maps, Options, Ownership,
    attachment::{attachments, end},
    cgroup::Cgroup,
    environment,
    map::{
        Barrier,
        pins::{self, Pins},
    },
    node,
    object::{self, Programs},
    sys::{
        self,
        cgroup::{self as bpf, CgroupLink},
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
/// [`scan`](Self::scan) and [`evict`](Self::evict) what an earlier load has left.
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
    _lock: Flock<File>,
}

impl Datapath {
    /// Adopts the pinned maps, or creates a set, and loads the programs against it. Attaches nothing.
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

    /// The packet programs that were loaded, attached or not.
    pub fn device_programs(&self) -> impl Iterator<Item = (DeviceHook, &HeldProgram)> {
        DeviceHook::ALL.into_iter().zip(&self.programs.devices)
    }

    /// Returns when no program still runs that began before the call: an RCU grace period, tens of milliseconds.
    pub fn barrier(&self) -> Result<(), MapError> {
        self.barrier.wait()
    }

    /// Attaches the programs to the cgroup, or switches the links of an earlier start to them without a gap; then
    /// drops the maps of another layout, if there were any. Idempotent.
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
        self.pins.commit_next()?;
        Ok(attached)
    }

    /// What is attached to our hooks at the cgroup itself, and whose it is; in the order of [`Hook::ALL`], then
    /// of running.
    pub fn scan(&self) -> Result<Vec<Attachment>, LoaderError> {
        attachments(&self.cgroup, &self.programs.ids())
    }

    /// Ends an attachment of an earlier load; gone already is no error.
    ///
    /// # Errors
    /// [`LoaderError::NotEarlier`] for one that is current or somebody else's.
    pub fn evict(&self, attachment: &Attachment) -> Result<(), LoaderError> {
        let Attachment {
            hook,
            program_id,
            ownership,
            ..
        } = *attachment;
        if ownership != Ownership::Earlier {
            return Err(LoaderError::NotEarlier {
                program_id,
                hook,
                ownership,
            });
        }
        end(&self.cgroup, attachment).map(drop)
    }

    /// The link that attaches a program; `true`: it was there before.
    fn attach_one(&self, hook: Hook, program: &HeldProgram) -> Result<(OwnedFd, bool), LoaderError> {
        self.pins.recover_link(hook)?;
        if let Some(link) = self.adopt_link(hook)? {
            bpf::link_update(link.as_fd(), program.as_fd()).map_err(LoaderError::kernel(format!(
                "switch the link of {hook} to program {}",
                program.id()
            )))?;
            return Ok((link, true));
        }
        let link = self.create_link(hook, program)?;
        self.pins.pin_link(hook, link.as_fd())?;
        Ok((link, false))
    }

    /// The pinned link of a hook, if it is attached to this cgroup.
    fn adopt_link(&self, hook: Hook) -> Result<Option<OwnedFd>, LoaderError> {
        let path = self.pins.link(hook);
        let link = match sys::open_pinned(&path, 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            link => link.map_err(LoaderError::path("open the pinned link", path))?,
        };
        let CgroupLink {
            cgroup_id,
            attach_type,
            ..
        } = describe(hook, &link)?;
        Ok((cgroup_id == self.cgroup.id() && attach_type == hook.attach_type()).then_some(link))
    }

    /// A new link. If it is not let in, what an earlier load of ours has attached the legacy way, without
    /// ALLOW_MULTI, is taken away first.
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
        for attachment in self.scan()? {
            if attachment.hook == hook
                && attachment.ownership == Ownership::Earlier
                && attachment.link_id.is_none()
            {
                evicted |= end(&self.cgroup, &attachment)?;
            }
        }
        let occupied = |source| LoaderError::Occupied {
            hook,
            cgroup: self.cgroup.path().to_owned(),
            others: bpf::query(self.cgroup.as_fd(), hook.attach_type(), true).unwrap_or_default(),
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
fn describe(hook: Hook, link: &OwnedFd) -> Result<CgroupLink, LoaderError> {
    let no_link = || io::Error::new(io::ErrorKind::InvalidData, "it is no link of a cgroup");
    bpf::link_describe(link.as_fd())
        .and_then(|link| link.ok_or_else(no_link))
        .map_err(LoaderError::kernel(format!("look at the link of {hook}")))
}
