//! What the supervisor tells its starter.

use std::io::{self, Write};

use tokio::sync::mpsc;

use super::protocol::StartEvent;

/// Steps that are not told yet.
const STEPS: usize = 64;

/// Where the steps of a start go; a step that nobody takes in time is left out.
#[derive(Clone, Debug)]
pub(super) struct Steps(mpsc::Sender<String>);

impl Steps {
    /// A step begins.
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

/// Writes an event to stdout. A reader that is gone is no error: the end of stdin tells the same.
pub(super) fn line(event: &StartEvent) {
    if let Ok(mut text) = serde_json::to_vec(event) {
        text.push(b'\n');
        let mut stdout = io::stdout().lock();
        drop(stdout.write_all(&text).and_then(|()| stdout.flush()));
    }
}
