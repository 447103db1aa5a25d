//! Verdicts, and how a case ends early.

use std::fmt;

use cluster::ClusterError;
use serde::{Deserialize, Serialize};

/// What came of a case or of one of its axes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// Fault witnessed, control passed, every probe of every enabled axis inside the permitted set.
    Pass,
    /// Control passed, fault witnessed, at least one probe outside the set.
    Fail {
        /// The first finding.
        why: String,
    },
    /// The vendor does not declare the feature, or the implementation does not use what the fault attacks; decided before the run.
    NotSupported {
        /// Which.
        why: String,
    },
    /// The cluster lacks what the case needs; decided before the run.
    Skipped {
        /// What.
        why: String,
    },
    /// Control failed, fault or fence not seen, harness error, heal not verified. Never a pass.
    Inconclusive {
        /// Which.
        why: String,
    },
}

impl Verdict {
    /// Name, as in reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail { .. } => "fail",
            Self::NotSupported { .. } => "not-supported",
            Self::Skipped { .. } => "skipped",
            Self::Inconclusive { .. } => "inconclusive",
        }
    }

    /// Why; empty for a pass.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Self::Pass => "",
            Self::Fail { why }
            | Self::NotSupported { why }
            | Self::Skipped { why }
            | Self::Inconclusive { why } => why,
        }
    }

    /// Whether a run with it ends with exit code 1: an inconclusive case has not shown what it is for.
    #[must_use]
    pub fn fails_the_run(&self) -> bool {
        matches!(self, Self::Fail { .. } | Self::Inconclusive { .. })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if !self.why().is_empty() {
            write!(f, ": {}", self.why())?;
        }
        Ok(())
    }
}

/// Why a case ends before its last line.
#[derive(Debug, thiserror::Error)]
pub enum Halt {
    /// Its fault, fence or control was not seen, on any axis.
    #[error("{0}")]
    Inconclusive(String),
    /// The cluster could not do what it declares.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The API said no.
    #[error("failed to {what}: {source}")]
    Api {
        /// What was asked.
        what: String,
        /// What it said.
        source: Box<kube::Error>,
    },
    /// The fault could not be made or healed.
    #[error(transparent)]
    Fault(#[from] faults::FaultError),
    /// A manifest, a probe client or another part of the suite is broken.
    #[error("{0}")]
    Harness(String),
}

impl Halt {
    /// The verdict of every axis that has none yet.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Inconclusive(why) => Verdict::Inconclusive { why: why.clone() },
            // It ended while the case still looked: nothing broke, and nothing is proven.
            Self::Cluster(lapsed @ ClusterError::FaultLapsed) => Verdict::Inconclusive {
                why: lapsed.to_string(),
            },
            other => Verdict::Inconclusive {
                why: format!("harness error: {other}"),
            },
        }
    }
}
