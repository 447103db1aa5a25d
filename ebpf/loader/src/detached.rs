//! Programs and maps of one's own, unpinned and unattached: for packet tables, fuzzing, measurements.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use lb_abi::{Config, Meta};

use crate::{
    DeviceHook, HeldProgram, Hook, Input, LoaderError, MapError, MapName, Maps, Run, attach_link,
    map::Barrier,
    node_config,
    object::{self, Programs},
    sys,
};

/// A datapath that sees only the packets that it is given, and what it is attached to. Gone with the
/// value.
#[derive(Debug)]
pub struct Detached {
    programs: Programs,
    maps: Maps,
    meta: OwnedFd,
    barrier: Barrier,
    /// Of socket programs, which nothing else keeps attached.
    links: Vec<OwnedFd>,
}

impl Detached {
    /// Loads all programs, with this many entries of CONNTRACK, as [`Options::flows`](crate::Options::flows). META says that the maps
    /// are live, and CONFIG is [`Config::NONE`].
    pub fn load(flows: u32) -> Result<Self, LoaderError> {
        let programs = object::load_detached(node_config::flows(Some(flows))?)?;
        let maps = Maps::new(|name| programs.map(name))?;
        maps.config.put(&Config::NONE)?;
        let detached = Self {
            maps,
            meta: programs.map(MapName::Meta)?,
            barrier: Barrier::new()?,
            links: Vec::new(),
            programs,
        };
        detached.put_meta(&Meta::CURRENT)?;
        Ok(detached)
    }

    /// Says whose the maps are: with any other value than [`Meta::CURRENT`] the programs leave everything alone.
    pub fn put_meta(&self, meta: &Meta) -> Result<(), LoaderError> {
        let key = 0_u32;
        // SAFETY: the sizes of META's key and value, which `Programs::map` has checked.
        unsafe { sys::map::update(self.meta.as_fd(), &raw const key, meta) }
            .map_err(LoaderError::kernel("write META"))
    }

    /// Attaches the socket programs to a cgroup, which the kernel does not allow to be run on their own.
    ///
    /// # Errors
    /// [`LoaderError::WrongFilesystem`] for what is no cgroup (v2); [`LoaderError::Kernel`].
    pub fn attach_sockets(&mut self, cgroup: &Path) -> Result<(), LoaderError> {
        for (hook, program) in Hook::ALL.into_iter().zip(&self.programs.sockets) {
            self.links.push(attach_link(cgroup, hook, program)?);
        }
        Ok(())
    }

    /// The program of a device hook, to be attached to a device.
    ///
    /// # Errors
    /// None: all are loaded.
    pub fn program(&self, hook: DeviceHook) -> Result<&HeldProgram, LoaderError> {
        self.programs.device(hook)
    }

    /// Its maps.
    pub const fn maps(&self) -> &Maps {
        &self.maps
    }

    /// As [`Datapath::barrier`](crate::Datapath::barrier).
    pub fn barrier(&self) -> Result<(), MapError> {
        self.barrier.wait()
    }

    /// Runs a program on a packet, which then goes nowhere (`BPF_PROG_TEST_RUN`), on the calling thread and in its
    /// network namespace.
    ///
    /// # Errors
    /// [`LoaderError::Kernel`]: EINVAL for a packet that is too short or too long, ENODEV for a device that is not
    /// there.
    pub fn run(&self, hook: DeviceHook, input: &Input<'_>) -> Result<Run, LoaderError> {
        let program = self.programs.device(hook)?;
        sys::test_run::run(program.as_fd(), input).map_err(LoaderError::kernel(format!(
            "run {hook} on a packet of {} bytes at device {}",
            input.packet.len(),
            input.ifindex
        )))
    }
}
