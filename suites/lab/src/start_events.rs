//! Start events, from the supervisor to the process that has started it.

use std::io::{self, Write};

use tokio::sync::mpsc;

use super::protocol::StartEvent;

/// Capacity of the queue of steps.
const STEPS: usize = 64;

/// Receiver of the steps of a start; a step is dropped when the queue is full.
#[derive(Clone, Debug)]
pub(super) struct Steps(mpsc::Sender<String>);

impl Steps {
    /// Reports the begin of a step.
    pub(super) fn begin(&self, step: impl Into<String>) {
        let step = step.into();
        tracing::info!(step, "starting");
        drop(self.0.try_send(step));
    }
}

pub(super) fn steps() -> (Steps, mpsc::Receiver<String>) {
    let (sender, receiver) = mpsc::channel(STEPS);
    (Steps(sender), receiver)
}

/// Writes an event to stdout. A closed pipe is no error: the end of stdin shows the same.
pub(super) fn line(event: &StartEvent) {
    if let Ok(mut text) = serde_json::to_vec(event) {
        text.push(b'\n');
        let mut stdout = io::stdout().lock();
        drop(stdout.write_all(&text).and_then(|()| stdout.flush()));
    }
}
