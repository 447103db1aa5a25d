//! A Service without backends is refused with another errno: no bug, the catalogue permits it.
//!
//! Cilium 1.18.5 fails connections to such a Service with EPERM, 1.19.5 with EHOSTUNREACH. A suite that only accepts
//! ECONNREFUSED fails both wrongly.

use std::path::Path;

use doctor::{EvictionError, Inventory};
use lb_loader::{ALLOW_MULTI, Hook, LoaderError, attach_legacy, instruction, load_crafted};
use reference_agent::datapath::Datapath;

use crate::datapath_decorator::{Flaw, Flawed};

/// Operation not permitted, of `errno-base.h`.
pub const EPERM: i32 = 1;
/// No route to host, of `errno.h`.
pub const EHOSTUNREACH: i32 = 113;
/// The errno of the production agent's programs.
const ECONNREFUSED: i32 = 111;

/// Hooks that refuse clients in the system call itself.
const HOOKS: [Hook; 4] = [Hook::Connect4, Hook::Connect6, Hook::Sendmsg4, Hook::Sendmsg6];

/// The production agent's datapath; after its first start, `also` attaches programs that change the errno.
pub fn refused_as<D: Datapath, A: FnOnce() -> Result<(), LoaderError> + Send>(
    inner: D,
    also: A,
) -> Flawed<D, RefusedAs<A>> {
    Flawed::new(inner, RefusedAs { also: Some(also) })
}

/// The flaw, which is none.
#[derive(Debug)]
pub struct RefusedAs<A> {
    /// `None` once it was called.
    also: Option<A>,
}

impl<D: Datapath, A: FnOnce() -> Result<(), LoaderError> + Send> Flaw<D> for RefusedAs<A> {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn attach(&mut self, inner: &mut D) -> Result<(), EvictionError> {
        inner.attach()?;
        Ok(self.also.take().map_or(Ok(()), |also| also())?)
    }

    fn leftovers(&self, inner: &D) -> Result<Inventory, LoaderError> {
        inner.leftovers()
    }
}

/// Attaches programs behind the agent's own that return `errno` instead of ECONNREFUSED. Permitted calls do not change.
///
/// # Errors
/// The kernel returns an error; it must have `bpf_get_retval` (5.18).
pub fn attach_behind(cgroup: &Path, errno: i32) -> Result<(), LoaderError> {
    const GET_RETVAL: i32 = 186;
    const SET_RETVAL: i32 = 187;
    let instructions = [
        instruction(0x85, 0, 0, 0, GET_RETVAL),
        // With another errno, or none: skips two instructions.
        instruction(0x56, 0, 0, 2, -ECONNREFUSED),
        instruction(0xb7, 1, 0, 0, -errno),
        instruction(0x85, 0, 0, 0, SET_RETVAL),
        instruction(0xb7, 0, 0, 0, 1),
        instruction(0x95, 0, 0, 0, 0),
    ];
    for hook in HOOKS {
        let program = load_crafted("refused_as", hook, &instructions)?;
        attach_legacy(cgroup, hook, &program, ALLOW_MULTI)?;
    }
    Ok(())
}
