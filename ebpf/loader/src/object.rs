//! The embedded object: programs, loaded against a set of maps.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use aya::{
    Ebpf, EbpfLoader, include_bytes_aligned,
    maps::{Map, MapData},
    programs::{Program, ProgramError, ProgramFd},
};

use crate::{
    DeviceHook, HeldProgram, Hook, LoaderError, MapName, ipv6only, node_config,
    sys::{self, program::set_retval_is_offered},
};

/// Made by `cargo xtask ebpf build`; this crate's build script warns when it is not that of the sources.
pub(crate) static OBJECT: &[u8] = include_bytes_aligned!("../../prebuilt/plumbline.bpf.o");

/// The programs of the object: those of sockets loaded, those of packets when they are needed first, as a verifier has
/// much to go through.
#[derive(Debug)]
pub(crate) struct Programs {
    object: Ebpf,
    /// In the order of [`Hook::ALL`]; none of them, if none are wanted.
    pub(crate) sockets: Vec<HeldProgram>,
    devices: BTreeMap<DeviceHook, HeldProgram>,
}

impl Programs {
    /// Loads the program of a packet hook, if it is not loaded yet.
    pub(crate) fn load_device(&mut self, hook: DeviceHook) -> Result<(), LoaderError> {
        if !self.devices.contains_key(&hook) {
            let program = program(&mut self.object, hook.name())?;
            self.devices.insert(hook, program);
        }
        Ok(())
    }

    /// The program of a packet hook.
    ///
    /// # Errors
    /// [`LoaderError::Incomplete`] if it was not loaded.
    pub(crate) fn device(&self, hook: DeviceHook) -> Result<&HeldProgram, LoaderError> {
        self.devices.get(&hook).ok_or_else(|| incomplete(hook.name()))
    }

    /// The packet programs that were loaded.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (DeviceHook, &HeldProgram)> {
        self.devices.iter().map(|(hook, program)| (*hook, program))
    }

    /// Which packet hook a program is for.
    pub(crate) fn device_hook(&self, program_id: u32) -> Option<DeviceHook> {
        self.devices()
            .find(|(_, program)| program.id() == program_id)
            .map(|(hook, _)| hook)
    }

    /// Ids of all that were loaded.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.sockets
            .iter()
            .chain(self.devices.values())
            .map(HeldProgram::id)
            .collect()
    }
}

/// Loads the socket programs, if they are wanted. Maps that are pinned in the folder are used, the others are made and pinned
/// there; CONNTRACK with this many entries, those of sockets with as many as [`node_config::sockets`] says. `made` is called when they are
/// there, and before any program is.
///
/// The caller has checked the layout of those that are there, and checks that of those that are made.
pub(crate) fn load(
    folder: &Path,
    flows: u32,
    sockets: bool,
    made: impl FnOnce() -> Result<(), LoaderError>,
) -> Result<Programs, LoaderError> {
    let object = open(Some(folder), flows)?;
    made()?;
    programs(object, sockets)
}

/// Loads all programs against maps of their own.
pub(crate) fn load_detached(flows: u32) -> Result<Programs, LoaderError> {
    let mut programs = programs(open(None, flows)?, true)?;
    for hook in DeviceHook::ALL {
        programs.load_device(hook)?;
    }
    Ok(programs)
}

impl Programs {
    /// The id of one of the maps.
    pub(crate) fn map_id(&self, name: MapName) -> Result<u32, LoaderError> {
        let fd = data(&self.object, name.name())?.fd().as_fd();
        let described = sys::map::describe(fd);
        described
            .map(|map| map.id)
            .map_err(LoaderError::kernel(format!("look at map {name} of the object")))
    }

    /// One of the maps, if its layout is right.
    pub(crate) fn map(&self, name: MapName) -> Result<OwnedFd, LoaderError> {
        let fd = data(&self.object, name.name())?.fd().as_fd();
        let failed = || LoaderError::kernel(format!("look at map {name} of the object"));
        let layout = sys::map::describe(fd).map_err(failed())?.layout;
        if !name.fits(layout) {
            return Err(missing(name.name()));
        }
        fd.try_clone_to_owned().map_err(failed())
    }
}

/// A map of an object.
pub(crate) fn data<'a>(object: &'a Ebpf, name: &str) -> Result<&'a MapData, LoaderError> {
    match object.map(name) {
        Some(
            Map::Array(data)
            | Map::PerCpuArray(data)
            | Map::HashMap(data)
            | Map::LruHashMap(data)
            | Map::LpmTrie(data),
        ) => Ok(data),
        _ => Err(missing(name)),
    }
}

fn missing(name: &str) -> LoaderError {
    LoaderError::Incomplete {
        what: format!("fitting map {name}"),
    }
}

/// Makes the maps, CONNTRACK with this many entries, and relocates the programs against them.
pub(crate) fn open(folder: Option<&Path>, flows: u32) -> Result<Ebpf, LoaderError> {
    let offered = set_retval_is_offered(Hook::Connect4.attach_type()).map_err(LoaderError::kernel(
        "find out whether the kernel offers bpf_set_retval",
    ))?;
    if !offered {
        tracing::warn!(
            "this kernel does not offer bpf_set_retval to socket hooks: where a service has no backends, clients see \
             EPERM instead of ECONNREFUSED, and a bind to a node port EPERM instead of EADDRINUSE"
        );
    }
    let ipv6only = ipv6only::bit()?;
    if ipv6only.mask == 0 {
        tracing::warn!(
            "this kernel does not let programs see whether a socket is IPV6_V6ONLY: one that is can not be bound to an \
             IPv4 node port at ::"
        );
    }
    let mut loader = EbpfLoader::new();
    let have_set_retval = u32::from(offered);
    loader
        .override_global("HAVE_SET_RETVAL", &have_set_retval, true)
        .override_global("IPV6ONLY_OFFSET", &ipv6only.offset, true)
        .override_global("IPV6ONLY_MASK", &ipv6only.mask, true)
        .map_max_entries(MapName::Conntrack.name(), flows);
    for map in MapName::PER_SOCKET {
        loader.map_max_entries(map.name(), node_config::sockets(flows));
    }
    if let Some(folder) = folder {
        for map in MapName::PINNED {
            loader.map_pin_path(map.name(), folder.join(map.name()));
        }
    }
    Ok(loader.load(OBJECT)?)
}

fn programs(mut object: Ebpf, sockets: bool) -> Result<Programs, LoaderError> {
    let sockets = Hook::ALL
        .into_iter()
        .filter(|_| sockets)
        .map(|hook| program(&mut object, hook.name()))
        .collect::<Result<_, _>>()?;
    Ok(Programs {
        object,
        sockets,
        devices: BTreeMap::new(),
    })
}

/// Loads one program.
pub(crate) fn program(object: &mut Ebpf, name: &'static str) -> Result<HeldProgram, LoaderError> {
    let program = object.program_mut(name).ok_or_else(|| incomplete(name))?;
    let fd = into_kernel(program)
        .and_then(|fd| Ok(fd.as_fd().try_clone_to_owned()?))
        .map_err(|source| LoaderError::Program {
            program: name,
            source: Box::new(source),
        })?;
    HeldProgram::new(fd)
}

fn into_kernel(program: &mut Program) -> Result<&ProgramFd, ProgramError> {
    match program {
        Program::CgroupSockAddr(program) => {
            program.load()?;
            program.fd()
        }
        Program::CgroupSock(program) => {
            program.load()?;
            program.fd()
        }
        Program::SchedClassifier(program) => {
            program.load()?;
            program.fd()
        }
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

fn incomplete(name: &str) -> LoaderError {
    LoaderError::Incomplete {
        what: format!("program {name}"),
    }
}
