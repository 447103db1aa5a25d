//! One thread writes the lines, so that a reader that is behind delays no attempt that is under way.

use std::{
    io::{self, Write},
    thread,
};

use oracle::history::Attempt;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::UNWRITTEN;
use crate::wire;

/// The writing thread.
pub(super) struct Output {
    ended: oneshot::Receiver<io::Result<()>>,
}

impl Output {
    /// Starts it. It ends when every sender is gone; if it can't write it cancels `stop` and ends.
    pub(super) fn start(
        mut output: impl Write + Send + 'static,
        stop: CancellationToken,
    ) -> (mpsc::Sender<Attempt>, Self) {
        let (sender, mut attempts) = mpsc::channel::<Attempt>(UNWRITTEN);
        let (tell, ended) = oneshot::channel();
        thread::spawn(move || {
            let mut write = || -> io::Result<()> {
                while let Some(attempt) = attempts.blocking_recv() {
                    output.write_all(&wire::line(&attempt))?;
                    output.flush()?;
                }
                Ok(())
            };
            let result = write();
            if result.is_err() {
                stop.cancel();
            }
            // Nobody waits for the result of a client that was dropped.
            drop(tell.send(result));
        });
        (sender, Self { ended })
    }

    /// Waits until all is written.
    pub(super) async fn end(self) -> io::Result<()> {
        self.ended
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")))
    }
}
