//! A thread that writes the lines, so that a slow reader delays no attempt that is under way.

use std::{
    io::{self, Write},
    thread,
    time::Duration,
};

use oracle::history::Attempt;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::UNWRITTEN;
use crate::wire;

/// Interval of writes. At the rates of plans far fewer than [`UNWRITTEN`] attempts end in it, and no reader needs their
/// lines sooner.
const TOGETHER: Duration = Duration::from_millis(20);

/// The writing thread.
pub(super) struct Output {
    ended: oneshot::Receiver<io::Result<()>>,
}

impl Output {
    /// Starts it. It ends when every sender is dropped; if it cannot write it cancels `stop` and ends.
    pub(super) fn start(
        mut output: impl Write + Send + 'static,
        stop: CancellationToken,
    ) -> (mpsc::Sender<Attempt>, Self) {
        let (sender, mut attempts) = mpsc::channel::<Attempt>(UNWRITTEN);
        let (done, ended) = oneshot::channel();
        thread::spawn(move || {
            let mut write = || -> io::Result<()> {
                let (mut ended, mut lines) = (Vec::new(), Vec::new());
                while attempts.blocking_recv_many(&mut ended, UNWRITTEN) > 0 {
                    lines.clear();
                    for attempt in ended.drain(..) {
                        wire::write(&mut lines, &attempt);
                    }
                    output.write_all(&lines)?;
                    output.flush()?;
                    // Attempts that end meanwhile are written together: each write wakes a reader.
                    thread::sleep(TOGETHER);
                }
                Ok(())
            };
            let result = write();
            if result.is_err() {
                stop.cancel();
            }
            // The result of a dropped client has no receiver.
            drop(done.send(result));
        });
        (sender, Self { ended })
    }

    /// Waits until everything is written.
    pub(super) async fn end(self) -> io::Result<()> {
        self.ended
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")))
    }
}
