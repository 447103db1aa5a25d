//! What is known of a fragmented datagram is forgotten before its next fragment comes.
//!
//! What an agent does that translates each packet by its ports: of a fragment that has none nobody knows whose it is.

use std::{
    io,
    path::Path,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use aya::maps::{HashMap, Map, MapData, MapError};
use lb_abi::{FragmentKey, Ports};
use lb_loader::LoaderError;
use reference_agent::datapath::Datapath;

use crate::flawed::{Flaw, Flawed};

/// Less than from one fragment of a client to the next.
const PERIOD: Duration = Duration::from_millis(1);
/// Where the agent pins the map, below its bpffs.
const PINNED: &str = "plumbline/v1/maps/FRAGMENTS";

/// Where every node's bpffs is in its mount namespace.
pub const BPFFS: &str = "/sys/fs/bpf";

/// The production agent's datapath; once it is attached, `forget` is called all the while.
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

/// Its flaw.
#[derive(Debug)]
pub struct FragmentsForgotten<F> {
    /// None after the first attachment.
    forget: Option<F>,
    /// The thread ends with this; none before the first attachment.
    ends: Option<mpsc::Sender<()>>,
}

impl<D: Datapath, F: FnMut() + Send + 'static> Flaw<D> for FragmentsForgotten<F> {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn attach(&mut self, inner: &mut D) -> Result<(), LoaderError> {
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
/// What the kernel said.
pub fn empty_fragments(bpffs: &Path) -> Result<(), MapError> {
    let map = Map::LruHashMap(MapData::from_pin(bpffs.join(PINNED))?);
    let mut fragments: HashMap<_, [u8; size_of::<FragmentKey>()], [u8; size_of::<Ports>()]> =
        HashMap::try_from(map)?;
    let keys: Vec<_> = fragments.keys().collect::<Result<_, _>>()?;
    for key in keys {
        match fragments.remove(&key) {
            // The programs' own map gives up the oldest by itself.
            Err(MapError::KeyNotFound) => {}
            Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}
