//! The per-CPU counters, summed.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use lb_abi::Counter;

use crate::{MapError, MapName, Operation, sys::map as bpf};

/// The counters at one moment, each summed over all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts([u64; Counter::ALL.len()]);

impl Counts {
    /// One of them.
    pub const fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }
}

/// COUNTERS.
#[derive(Debug)]
pub(crate) struct Counters {
    fd: OwnedFd,
}

impl Counters {
    /// The map must have the layout of COUNTERS.
    pub(crate) const fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    pub(crate) fn read(&self) -> Result<Counts, MapError> {
        let failed = |source| MapError {
            map: MapName::Counters,
            operation: Operation::List,
            source,
        };
        let mut counts = Counts([0; Counter::ALL.len()]);
        let cpus = aya::util::nr_cpus().map_err(|(_, source)| failed(source))?;
        let mut values = vec![0_u64; cpus];
        for (counter, sum) in Counter::ALL.into_iter().zip(&mut counts.0) {
            let key = counter as u32;
            // SAFETY: a key of 4 bytes, and 8 bytes for each possible CPU.
            let found = unsafe { bpf::lookup(self.fd.as_fd(), &raw const key, values.as_mut_ptr()) }
                .map_err(failed)?;
            if !found {
                return Err(failed(io::ErrorKind::NotFound.into()));
            }
            *sum = values.iter().sum();
        }
        Ok(counts)
    }
}
