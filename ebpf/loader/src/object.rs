//! The embedded object: programs, loaded against a set of pinned maps.

use std::{os::fd::AsFd as _, path::Path};

use aya::{EbpfLoader, include_bytes_aligned, programs::CgroupSockAddr};

use crate::{HeldProgram, Hook, LoaderError, MapName, sys::program::set_retval_is_offered};

/// Made by `cargo xtask ebpf build`; this crate's build script warns when it is not that of the sources.
static OBJECT: &[u8] = include_bytes_aligned!("../../prebuilt/plumbline.bpf.o");

/// Loads all programs, in the order of [`Hook::ALL`]. Maps that are pinned in the folder are used, the others are
/// made and pinned there.
///
/// The caller has checked the layout of those that are there, and checks that of those that are made.
pub(crate) fn load(folder: &Path) -> Result<[HeldProgram; Hook::ALL.len()], LoaderError> {
    let offered = set_retval_is_offered(Hook::Connect4.attach_type()).map_err(LoaderError::kernel(
        "find out whether the kernel offers bpf_set_retval",
    ))?;
    if !offered {
        tracing::warn!(
            "this kernel does not offer bpf_set_retval to socket hooks: where a service has no backends, clients see \
             EPERM instead of ECONNREFUSED"
        );
    }
    let mut loader = EbpfLoader::new();
    let have_set_retval = u32::from(offered);
    loader.override_global("HAVE_SET_RETVAL", &have_set_retval, true);
    for map in MapName::PINNED {
        loader.map_pin_path(map.name(), folder.join(map.name()));
    }
    let mut object = loader.load(OBJECT)?;
    let [first, second, third, fourth] = Hook::ALL;
    let mut load = |hook| program(&mut object, hook);
    Ok([load(first)?, load(second)?, load(third)?, load(fourth)?])
}

fn program(object: &mut aya::Ebpf, hook: Hook) -> Result<HeldProgram, LoaderError> {
    let refused = |source| LoaderError::Program {
        hook,
        source: Box::new(source),
    };
    let program: &mut CgroupSockAddr = object
        .program_mut(hook.name())
        .ok_or_else(|| LoaderError::Incomplete {
            what: format!("program {hook}"),
        })?
        .try_into()
        .map_err(refused)?;
    program.load().map_err(refused)?;
    let fd = program.fd().map_err(refused)?.as_fd().try_clone_to_owned();
    HeldProgram::new(fd.map_err(LoaderError::kernel("keep a program's descriptor"))?)
}
