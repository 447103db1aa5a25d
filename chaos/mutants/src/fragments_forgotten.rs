//! The state of a fragmented datagram is forgotten before its next fragment arrives.
//!
//! The bug of an agent that translates each packet by its ports alone: later fragments have no ports, and are not
//! translated.

use std::{
    path::Path,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use doctor::EvictionError;
use lb_loader::{LoaderError, empty_map};
use reference_agent::datapath::Datapath;

use crate::datapath_decorator::{Flaw, Flawed};

/// Less than the interval between two fragments of a client.
const PERIOD: Duration = Duration::from_millis(1);
/// Where the agent pins the map, below its bpffs.
const PINNED: &str = "plumbline/v1/maps/FRAGMENTS";

/// Mount point of each node's bpffs in its mount namespace.
pub const BPFFS: &str = "/sys/fs/bpf";

/// The production agent's datapath; once attached, it calls `forget` continuously.
pub fn fragments_forgotten<D: Datapath, F: FnMut() + Send + 'static>(
    inner: D,
    forget: F,
) -> Flawed<D, FragmentsForgotten<F>> {
    Flawed::new(
        inner,
        FragmentsForgotten {
            forget: Some(forget),
            ends: None,
        },
    )
}

/// The flaw.
#[derive(Debug)]
pub struct FragmentsForgotten<F> {
    /// `None` after the first attachment.
    forget: Option<F>,
    /// The thread ends when this is dropped; `None` before the first attachment.
    ends: Option<mpsc::Sender<()>>,
}

impl<D: Datapath, F: FnMut() + Send + 'static> Flaw<D> for FragmentsForgotten<F> {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn attach(&mut self, inner: &mut D) -> Result<(), EvictionError> {
        inner.attach()?;
        if let Some(mut forget) = self.forget.take() {
            let (ends, ended) = mpsc::channel();
            self.ends = Some(ends);
            thread::spawn(move || {
                while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                    forget();
                }
            });
        }
        Ok(())
    }
}

/// Empties the map FRAGMENTS that is pinned below a bpffs.
///
/// # Errors
/// The map is not pinned there, or the kernel returns an error.
pub fn empty_fragments(bpffs: &Path) -> Result<(), LoaderError> {
    empty_map(&bpffs.join(PINNED))
}
