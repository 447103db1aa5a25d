//! SIGINT (Ctrl-C) and SIGTERM.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::terminal;

/// Exit code after an interruption: 128 + SIGINT.
pub(super) const INTERRUPTED: u8 = 130;

/// A token that the first SIGINT or SIGTERM cancels. The second one ends the process at once, and the lab with it.
pub(crate) fn interruption() -> anyhow::Result<CancellationToken> {
    let token = CancellationToken::new();
    let cancelled = token.clone();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        for first in [true, false] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if first {
                terminal::message("interrupted: cleaning up; once more to end at once");
                cancelled.cancel();
            } else {
                terminal::draw(None);
                std::process::exit(i32::from(INTERRUPTED));
            }
        }
    });
    Ok(token)
}
