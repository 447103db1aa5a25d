//! Logs, on stderr.

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// Options of logs.
#[derive(Debug, Args)]
pub(super) struct LogFlags {
    /// How log lines look: for people, or as one JSON object each
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// What is logged: error, warn, info, debug or trace, or such for parts, separated by commas
    ///
    /// Each line about a Service has its name as a field, so that `grep 'service=shop/cart'` shows a Service's story: with
    /// debug, each change that was written, with what it changed; with info, what went wrong with it and when that was
    /// over. Lines about what is wrong with objects are limited in number; /findings has all of it.
    #[arg(
        long,
        env = "RUST_LOG",
        value_name = "FILTER",
        // Without kube's own lines on failed requests, which the watches log with their consequences.
        default_value = "info,kube_client::client::builder=off"
    )]
    log_filter: String,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object in each line.
    Json,
}

impl LogFlags {
    /// Logs from now on.
    ///
    /// # Errors
    /// The filter can't be read.
    pub(super) fn start(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.log_filter)
            .map_err(|error| anyhow::anyhow!("failed to read --log-filter {:?}: {error}", self.log_filter))?;
        let stderr = std::io::stderr;
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(stderr);
        match self.log_format {
            LogFormat::Text => lines.with_ansi(stderr().is_terminal()).init(),
            LogFormat::Json => lines.json().flatten_event(true).init(),
        }
        Ok(())
    }
}
