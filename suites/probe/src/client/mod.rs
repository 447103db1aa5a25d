//! The client: carries out a plan and writes the results.
//!
//! - One entry of a plan: `pace` (when attempts begin), `attempt`, `flow` (established flows), `persistent_sockets`,
//!   `fragments`, `transfer`; `socket` and `tls` are what they talk through.
//! - Results: `output`, `history_buffer` (kept for readers), `fragment_capture`; `control`: a client that outlives its
//!   starter.

mod attempt;
pub mod control;
mod flow;
mod fragment_capture;
mod fragments;
mod history_buffer;
mod output;
mod pace;
pub mod persistent_sockets;
mod socket;
mod tls;
mod transfer;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use oracle::history::{Plan, PlanEntry, Transport};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use attempt::symbol;
pub use flow::UNDER_WAY;
use history_buffer::Kept;
pub use history_buffer::{IN_FILE, IN_MEMORY};
use output::Output;
use pace::{Entry, Queue};
pub use transfer::{Transfer, transfer};

/// Limit of attempts of one entry that are under way. At this limit the next one starts when one ends, which its
/// `start_us` shows.
pub const IN_FLIGHT: usize = 512;
/// Established flows of one entry.
pub const MAX_FLOWS: u32 = 512;
/// Ended attempts that wait for the output's reader; at this limit their entries wait.
pub const UNWRITTEN: usize = 1024;
/// Longest plan, in bytes.
pub const MAX_PLAN: u64 = 1 << 20;

/// Why a client did not start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Not a plan.
    #[error("failed to read the plan: {why}; expected one JSON line such as {example}", example = EXAMPLE)]
    Plan {
        /// What is wrong with it.
        why: String,
    },
    /// Not a round.
    #[error("failed to read a round: {why}; expected one JSON line such as {example}")]
    Round {
        /// What is wrong with it.
        why: String,
        /// A valid example.
        example: &'static str,
    },
    /// Packets cannot be watched.
    #[error("failed to watch packets: {0}; expected the right to (CAP_NET_RAW)")]
    Watch(io::Error),
    /// The history cannot be kept.
    #[error("failed to make {}: {error}; expected a path in a folder that is there, for a socket that no other client has", path.display())]
    Keep {
        /// The socket, or the file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The output cannot be written, so no more attempts are made.
    #[error("failed to write an attempt, and ended early: {0}")]
    Output(io::Error),
}

const EXAMPLE: &str = r#"{"client":"c1","entries":[{"target":"vip","transport":"TCP","address":"10.96.0.10","port":80,"count":10,"interval_ms":100,"limit_ms":1000}]}"#;

/// Reads a plan and checks it.
///
/// # Errors
/// [`ClientError::Plan`].
pub fn parse(line: &str) -> Result<Plan, ClientError> {
    let wrong = |why: String| ClientError::Plan { why };
    let plan: Plan = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
    for entry in &plan.entries {
        let numbers = [
            ("count", u64::from(entry.count)),
            ("limit_ms", entry.limit_ms),
            ("at_once", entry.at_once.map_or(1, u64::from)),
        ];
        for (name, value) in numbers {
            if value == 0 {
                return Err(wrong(format!(
                    "entry {:?} has {name} 0; expected at least 1",
                    entry.target
                )));
            }
        }
        if let Some([first, last]) = entry.source_ports
            && (first == 0 || first > last)
        {
            return Err(wrong(format!(
                "entry {:?} has source_ports {first} to {last}; expected the first, at least 1, and the last",
                entry.target
            )));
        }
        if entry.one_way && (entry.flows.is_none() || entry.transport != Transport::Udp) {
            return Err(wrong(format!(
                "entry {:?} is one_way; expected flows of UDP",
                entry.target
            )));
        }
        if let Some(flows) = entry.flows {
            check_flows(flows, entry).map_err(|why| wrong(format!("entry {:?} {why}", entry.target)))?;
        }
    }
    Ok(plan)
}

fn check_flows(flows: u32, entry: &PlanEntry) -> Result<(), String> {
    if flows == 0 || flows > MAX_FLOWS {
        return Err(format!("has {flows} flows; expected 1 to {MAX_FLOWS}"));
    }
    if let Some([first, last]) = entry.source_ports
        && u32::from(last - first) + 1 < flows
    {
        return Err(format!("has {flows} flows and source_ports for fewer"));
    }
    if entry.interval_ms == 0 {
        return Err("has flows and interval_ms 0; expected the time between two exchanges".to_owned());
    }
    if entry.until.is_some() {
        return Err("has flows and until; expected only one of them: flows end with their count".to_owned());
    }
    Ok(())
}

/// Carries out a plan. Each attempt is written to `output`, and flushed, as it ends.
///
/// Returns when every entry has ended, or soon after `stop` is cancelled: attempts under way are then dropped without a
/// line.
///
/// # Errors
/// [`ClientError::Output`]: the output has no reader any more.
pub async fn run(
    plan: Plan,
    output: impl Write + Send + 'static,
    stop: CancellationToken,
) -> Result<(), ClientError> {
    let (sender, output) = Output::start(output, stop.clone());
    let queue = Arc::new(Queue::new());
    let mut entries = JoinSet::new();
    for (index, entry) in plan.entries.into_iter().enumerate() {
        let entry = Entry::new(
            &plan.client,
            index,
            entry,
            sender.clone(),
            queue.clone(),
            stop.clone(),
        );
        entries.spawn(entry.run());
    }
    drop(sender);
    entries.join_all().await;
    output.end().await.map_err(ClientError::Output)
}

/// Carries out a plan independent of readers: the history is kept, in memory and in a new file, for readers at a socket
/// ([`control::send`]). Returns when the plan has ended and a reader has read the history to its end, or none has for
/// [`control::UNREAD`]; or soon after `stop` is cancelled.
///
/// # Errors
/// [`ClientError::Keep`].
pub async fn run_kept(
    plan: Plan,
    socket: &Path,
    file: Option<&Path>,
    stop: CancellationToken,
) -> Result<(), ClientError> {
    let keep = |path: &Path| {
        let path = path.to_owned();
        move |error| ClientError::Keep { path, error }
    };
    let kept = Kept::new(IN_MEMORY, file).map_err(keep(file.unwrap_or(socket)))?;
    let listener = control::listen(socket).map_err(keep(socket))?;
    let (enough, ended) = (stop.child_token(), CancellationToken::new());
    let running = async {
        let result = run(plan, kept.clone(), enough.clone()).await;
        kept.end();
        ended.cancel();
        result
    };
    let serving = stop.run_until_cancelled(control::serve(&listener, &kept, &enough, &ended));
    let (result, _) = tokio::join!(running, serving);
    // Another process may have removed it.
    drop(fs::remove_file(socket));
    result
}
