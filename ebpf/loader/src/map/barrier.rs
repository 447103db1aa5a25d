//! Waits until every program that was running has ended.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
};

use crate::{
    LoaderError, MapError, MapName, Operation,
    sys::map::{self as bpf, ARRAY, Layout},
};

/// A map that holds a map.
///
/// When user space updates such a map, the kernel waits for an RCU grace period before the call returns
/// (`maybe_wait_bpf_programs` in kernel/bpf/syscall.c, since 5.0, "so that user space knows that all programs use
/// the new map"). Programs run inside RCU read-side sections: whatever one of them found in any map before the
/// call, it has let go of after it.
#[derive(Debug)]
pub(crate) struct Barrier {
    outer: OwnedFd,
    inner: OwnedFd,
}

impl Barrier {
    pub(crate) fn new() -> Result<Self, LoaderError> {
        let layout = Layout {
            map_type: ARRAY,
            key_size: 4,
            value_size: 4,
            max_entries: 1,
            flags: 0,
        };
        let inner =
            bpf::create(layout, None).map_err(LoaderError::kernel("create the barrier's inner map"))?;
        let outer = bpf::create(MapName::Barrier.layout(), Some(inner.as_fd()))
            .map_err(LoaderError::kernel("create the barrier's map"))?;
        Ok(Self { outer, inner })
    }

    pub(crate) fn wait(&self) -> Result<(), MapError> {
        let failed = |source: io::Error| MapError {
            map: MapName::Barrier,
            operation: Operation::Barrier,
            source,
        };
        let (key, inner) = (0_u32, self.inner.as_raw_fd());
        // SAFETY: a key of 4 bytes and a descriptor.
        unsafe { bpf::update(self.outer.as_fd(), &raw const key, &raw const inner) }.map_err(failed)
    }
}
