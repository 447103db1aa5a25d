//! Faults of an API server, as its clients see them.
//!
//! [`Faults`] is a list of active faults of one or more replicas. [`Faults::begin`] adds one for some [`Clients`]; it ends when
//! its [`FaultGuard`] is dropped. Without faults, responses are unchanged.
//!
//! Bounds: [`MOST_ACTIVE`] faults at once; every delay is at most [`LONGEST`]. Faults buffer no events and no bodies: a delayed
//! watch keeps its position in the history, and gets 410 like any slow watch if the history loses that.
//!
//! `body`: slow and truncated responses. `registry`: the active faults. `visible`: what a watch or list may see.

mod body;
mod registry;
mod visible;

pub(crate) use body::{apply_to_body, broken};
pub use registry::{FaultGuard, Faults};
pub(crate) use visible::WatchFaults;

use std::{net::IpAddr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::status::Status;

/// Faults active at once.
pub const MOST_ACTIVE: usize = 64;
/// Longest delay of a fault.
pub const LONGEST: Duration = Duration::from_secs(600);
/// Slowest and fastest rate of [`Fault::SlowBodies`], in bytes per second.
pub const BODY_RATES: std::ops::RangeInclusive<u32> = 100..=10_000_000;

/// The clients that a fault is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clients {
    /// All clients.
    All,
    /// Requests of this user.
    User(String),
    /// Requests from this address.
    Source(IpAddr),
}

/// A client, as a replica identifies it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Its user names; none if it is anonymous.
    pub(crate) users: Vec<String>,
    pub(crate) source: IpAddr,
}

impl Clients {
    fn contain(&self, client: &Client) -> bool {
        match self {
            Self::All => true,
            Self::User(user) => client.users.contains(user),
            Self::Source(source) => client.source == *source,
        }
    }
}

/// What goes wrong for a client while the fault is active.
///
/// Health and version are never refused, so that a replica's readiness can be awaited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// A watch breaks (the answer ends in the middle) this long after it began, or after the fault began if that
    /// was later.
    CutWatches {
        /// How long a watch lives.
        after: Duration,
    },
    /// Events come this long after the write that made them.
    DelayEvents {
        /// How late.
        by: Duration,
    },
    /// Watches stay open but send neither events nor bookmarks. When the fault ends, a watch that lost an event ends with 410,
    /// so that its client lists again.
    DropEvents,
    /// Open watches and watches from a resourceVersion end with 410 Expired; so do lists at an exact version. Other lists work.
    Expire,
    /// The replica's cache stands still: watches get nothing that was written since the fault began, and lists
    /// that accept any version (`resourceVersion=0`, or not older than one) show the state of that moment.
    /// A consistent list or get (no resourceVersion) shows the newest state, as upstream's does; a list at
    /// a later version than the cache's is answered with 504 after three seconds. The cache can stand back only
    /// as far as the history reaches ([`Config::history_events`](crate::Config::history_events)).
    Lag,
    /// Requests are refused.
    Refuse {
        /// How.
        refusal: Refusal,
        /// `Retry-After`, in seconds, with the refusal.
        retry_after: Option<u32>,
    },
    /// Answers, watches too, come at this rate ([`BODY_RATES`]).
    SlowBodies {
        /// Bytes in a second.
        bytes_per_second: u32,
    },
    /// Answers, watches too, break off after so many bytes; the connection ends with them.
    TruncateBodies {
        /// Bytes that still come.
        after: usize,
    },
}

/// How a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// 429, as priority and fairness refuses.
    TooManyRequests,
    /// 500.
    InternalError,
    /// 503.
    Unavailable,
    /// 504.
    Timeout,
}

impl Refusal {
    /// The HTTP status.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::TooManyRequests => 429,
            Self::InternalError => 500,
            Self::Unavailable => 503,
            Self::Timeout => 504,
        }
    }

    fn status(self, retry_after: Option<u32>) -> Status {
        let status = match self {
            Self::TooManyRequests => Status::too_many_requests(),
            Self::InternalError => Status::internal("a fault refuses this request"),
            Self::Unavailable => Status::unavailable(),
            Self::Timeout => Status::timed_out(),
        };
        status.with_retry_after(retry_after)
    }
}

/// A fault that can't begin.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// [`MOST_ACTIVE`] are.
    #[error("expected at most {MOST_ACTIVE} active faults; end one before the next begins")]
    TooMany,
    /// A delay beyond [`LONGEST`].
    #[error("expected a delay of at most {LONGEST:?}, found {found:?}")]
    TooLong {
        /// The requested value.
        found: Duration,
    },
    /// [`Fault::Lag`] where there is no cache.
    #[error(
        "only an API server of the lab's own has a cache that can stand still: a proxy in front of Kubernetes' has none"
    )]
    NoCache,
    /// A rate outside of [`BODY_RATES`].
    #[error("expected a rate of {} to {} bytes per second, found {found}", BODY_RATES.start(), BODY_RATES.end())]
    Rate {
        /// The requested value.
        found: u32,
    },
}

impl Fault {
    fn check(&self) -> Result<(), FaultError> {
        match *self {
            Self::CutWatches { after: found } | Self::DelayEvents { by: found } if found > LONGEST => {
                Err(FaultError::TooLong { found })
            }
            Self::SlowBodies {
                bytes_per_second: found,
            } if !BODY_RATES.contains(&found) => Err(FaultError::Rate { found }),
            _ => Ok(()),
        }
    }
}
