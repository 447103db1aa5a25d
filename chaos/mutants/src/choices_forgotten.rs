//! Which backend an unconnected socket has chosen is forgotten again and again.
//!
//! What an agent does whose programs choose a backend for each datagram: every datagram is answered, by whichever backend.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use doctor::EvictionError;
use reference_agent::{datapath::Datapath, udp::Connections as _};

use crate::flawed::{Flaw, Flawed};

/// Far less than from one datagram of a client to the next.
const PERIOD: Duration = Duration::from_millis(20);

/// The production agent's datapath, whose CHOSEN is emptied all the while.
pub fn choices_forgotten<D: Datapath>(inner: D) -> Flawed<D, ChoicesForgotten> {
    Flawed::new(inner, ChoicesForgotten { ends: None })
}

/// Its flaw.
#[derive(Debug)]
pub struct ChoicesForgotten {
    /// The thread ends with this; none before the first attachment.
    ends: Option<mpsc::Sender<()>>,
}

impl<D: Datapath> Flaw<D> for ChoicesForgotten {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn attach(&mut self, inner: &mut D) -> Result<(), EvictionError> {
        inner.attach()?;
        if self.ends.is_none() {
            let mut connections = inner.connections()?;
            let (ends, ended) = mpsc::channel();
            self.ends = Some(ends);
            thread::spawn(move || {
                while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                    // What could not be removed is removed the next time.
                    let _ = connections.end_choices(&mut |_, _| true);
                }
            });
        }
        Ok(())
    }
}
