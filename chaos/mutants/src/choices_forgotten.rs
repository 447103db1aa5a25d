//! The backends that unconnected sockets have chosen are forgotten continuously.
//!
//! The bug of an agent whose programs choose a backend for each datagram: every datagram is answered, by any backend.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use doctor::EvictionError;
use reference_agent::{datapath::Datapath, udp::Connections as _};

use crate::datapath_decorator::{Flaw, Flawed};

/// Far less than the interval between two datagrams of a client.
const PERIOD: Duration = Duration::from_millis(20);

/// The production agent's datapath, whose map of choices is emptied continuously.
pub fn choices_forgotten<D: Datapath>(inner: D) -> Flawed<D, ChoicesForgotten> {
    Flawed::new(inner, ChoicesForgotten { ends: None })
}

/// The flaw.
#[derive(Debug)]
pub struct ChoicesForgotten {
    /// The thread ends when this is dropped; `None` before the first attachment.
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
            let connections = inner.connections()?;
            let (ends, ended) = mpsc::channel();
            self.ends = Some(ends);
            thread::spawn(move || {
                while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                    // The next round removes what is left.
                    let _ = connections.end_choices(&mut |_, _| true);
                }
            });
        }
        Ok(())
    }
}
