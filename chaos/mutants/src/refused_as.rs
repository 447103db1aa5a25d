//! A Service without backends is refused with another errno: no bug, the catalogue permits it.
//!
//! Cilium 1.18.5 fails connections to such a Service with EPERM, 1.19.5 with EHOSTUNREACH. A suite that knows ECONNREFUSED alone
//! accuses both.

use std::path::Path;

use doctor::{EvictionError, Inventory};
use lb_loader::{ALLOW_MULTI, Hook, LoaderError, attach_legacy, instruction, load_crafted};
use reference_agent::datapath::Datapath;

use crate::flawed::{Flaw, Flawed};

/// Operation not permitted, of `errno-base.h`.
pub const EPERM: i32 = 1;
/// No route to host, of `errno.h`.
pub const EHOSTUNREACH: i32 = 113;
/// What the production agent's programs say.
const ECONNREFUSED: i32 = 111;

/// Where clients are refused in the call itself.
const HOOKS: [Hook; 4] = [Hook::Connect4, Hook::Connect6, Hook::Sendmsg4, Hook::Sendmsg6];

/// The production agent's datapath, after whose first start `also` attaches what changes the errno.
pub fn refused_as<D: Datapath, A: FnOnce() -> Result<(), LoaderError> + Send>(
    inner: D,
    also: A,
) -> Flawed<D, RefusedAs<A>> {
    Flawed::new(inner, RefusedAs { also: Some(also) })
}

/// Its flaw, which is none.
#[derive(Debug)]
pub struct RefusedAs<A> {
    /// Gone when it was done.
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

/// Attaches programs behind the agent's own that say `errno` where these have said ECONNREFUSED. What was let
/// through is not changed.
///
/// # Errors
/// What the kernel said; it has to offer `bpf_get_retval` (5.18).
pub fn attach_behind(cgroup: &Path, errno: i32) -> Result<(), LoaderError> {
    const GET_RETVAL: i32 = 186;
    const SET_RETVAL: i32 = 187;
    let instructions = [
        instruction(0x85, 0, 0, 0, GET_RETVAL),
        // Another one, or none: after the next two.
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
