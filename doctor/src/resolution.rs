//! What a set of maps makes of a destination.

use std::{collections::BTreeSet, fmt, net::SocketAddr};

use serde::{Deserialize, Serialize};

/// What a set of maps makes of a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// It is no service: left alone.
    NotAService,
    /// It is one with these backends, of which one is chosen.
    Backends {
        /// Where they listen.
        backends: BTreeSet<SocketAddr>,
        /// Slots that lead to no backend: connections that choose them fail.
        holes: u32,
        /// A condition that the maps alone do not decide.
        only_if: Option<String>,
    },
    /// It is one, and the connection is refused.
    Refused {
        /// Why.
        because: String,
    },
    /// It is one, and the packet is dropped.
    Dropped {
        /// Why.
        because: String,
    },
    /// It is one, and this hook leaves it to the packet programs.
    LeftToPackets {
        /// Why.
        because: String,
    },
    /// The maps can't be read.
    Unknown {
        /// Why.
        because: String,
    },
}

impl Answer {
    /// The backends, of an answer that has some.
    pub fn backends(&self) -> Option<&BTreeSet<SocketAddr>> {
        match self {
            Self::Backends { backends, .. } => Some(backends),
            _ => None,
        }
    }
}

/// Most backends that a sentence names.
const NAMED: usize = 4;

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAService => f.write_str("no service: left alone"),
            Self::Backends {
                backends,
                holes,
                only_if,
            } => {
                for (index, backend) in backends.iter().take(NAMED).enumerate() {
                    let before = if index == 0 { "" } else { " or " };
                    write!(f, "{before}{backend}")?;
                }
                if backends.is_empty() {
                    f.write_str("nowhere")?;
                }
                if let Some(more) = backends.len().checked_sub(NAMED).filter(|more| *more > 0) {
                    write!(f, " or one of {more} others")?;
                }
                if *holes > 0 {
                    write!(f, " ({holes} slots lead nowhere)")?;
                }
                only_if
                    .iter()
                    .try_for_each(|condition| write!(f, ", only if {condition}"))
            }
            Self::Refused { because } => write!(f, "refused: {because}"),
            Self::Dropped { because } => write!(f, "dropped: {because}"),
            Self::LeftToPackets { because } => write!(f, "left to the packet programs: {because}"),
            Self::Unknown { because } => write!(f, "can't be known: {because}"),
        }
    }
}
