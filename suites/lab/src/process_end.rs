//! Ends processes and describes their exit status.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

use cluster::Stop;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{process::Child, time::timeout};

use super::LIMITS;

/// Ends a process and describes its exit status.
pub(super) async fn stop(child: &mut Child, how: Stop) -> String {
    if let (Stop::Term, Some(pid)) = (how, child.id()) {
        // The process may have ended by itself.
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM).ok();
        if let Ok(status) = timeout(LIMITS.agent_stop, child.wait()).await {
            return status.map_or_else(|error| error.to_string(), describe);
        }
    }
    drop(child.start_kill());
    child
        .wait()
        .await
        .map_or_else(|error| error.to_string(), describe)
}

/// Describes an exit status.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(number)) => {
            Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |signal| signal.to_string())
        }
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_said_in_words() {
        assert_eq!(describe(ExitStatus::from_raw(3 << 8)), "exit code 3");
        assert_eq!(describe(ExitStatus::from_raw(9)), "SIGKILL");
    }
}
