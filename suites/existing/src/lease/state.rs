//! The state of a run's Lease, for its cases.

use tokio::{sync::watch, time::Instant};

/// State after the last renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// The run holds the Lease.
    Held {
        /// Begin of the last successful renewal.
        renewed: Instant,
    },
    /// The API server did not renew it: no case may begin, as none could write anything.
    Unanswered {
        /// Begin of the last successful renewal.
        since: Instant,
        /// The error.
        why: String,
        /// It was not renewed for [`lease_given_up`](super::super::Limits::lease_given_up): another run may soon take
        /// it, so running cases have to end.
        expires: bool,
    },
    /// Another run holds it, or it is gone, or it could not be renewed for
    /// [`lease_awaited`](super::super::Limits::lease_awaited). This state is final.
    Lost {
        /// The reason.
        why: String,
    },
}

/// Follows the state of a Lease.
#[derive(Clone, Debug)]
pub struct LeaseWatch(pub(super) watch::Receiver<(LeaseState, u64)>);

impl LeaseWatch {
    /// The current state.
    #[must_use]
    pub fn now(&self) -> LeaseState {
        self.0.borrow().0.clone()
    }

    /// Why the Lease is lost, if it is.
    #[must_use]
    pub fn lost(&self) -> Option<String> {
        match self.now() {
            LeaseState::Lost { why } => Some(why),
            LeaseState::Held { .. } | LeaseState::Unanswered { .. } => None,
        }
    }

    /// Number of outages, in which the API server did not renew the Lease.
    #[must_use]
    pub fn absences(&self) -> u64 {
        self.0.borrow().1
    }

    /// Returns when the Lease expires or is lost, so that running cases have to end. Never returns once the Lease was
    /// released.
    pub async fn expires(&mut self) {
        let ends = |state: &LeaseState| match state {
            LeaseState::Held { .. } => false,
            LeaseState::Unanswered { expires, .. } => *expires,
            LeaseState::Lost { .. } => true,
        };
        self.until(ends).await;
    }

    /// Returns when the Lease is held or lost, at most after [`lease_awaited`](super::super::Limits::lease_awaited).
    ///
    /// # Errors
    /// Why it is lost.
    pub async fn settled(&mut self) -> Result<(), String> {
        match self
            .until(|state| !matches!(state, LeaseState::Unanswered { .. }))
            .await
        {
            LeaseState::Lost { why } => Err(why),
            LeaseState::Held { .. } | LeaseState::Unanswered { .. } => Ok(()),
        }
    }

    /// Returns when a renewal that began after this call has succeeded or failed: the state may be older than an
    /// outage.
    pub async fn confirmed(&mut self) {
        let called = Instant::now();
        let is_news = |state: &LeaseState| match state {
            LeaseState::Held { renewed } => *renewed >= called,
            LeaseState::Unanswered { .. } | LeaseState::Lost { .. } => true,
        };
        self.until(is_news).await;
    }

    async fn until(&mut self, what: impl Fn(&LeaseState) -> bool) -> LeaseState {
        match self.0.wait_for(|(state, _)| what(state)).await {
            Ok(state) => state.0.clone(),
            Err(_) => std::future::pending().await,
        }
    }
}

/// Publishes the result of renewals.
#[derive(Debug)]
pub(super) struct StatePublisher(watch::Sender<(LeaseState, u64)>);

impl StatePublisher {
    /// For a Lease that was taken now.
    pub(super) fn new() -> (Self, LeaseWatch) {
        let renewed = Instant::now();
        let (sender, receiver) = watch::channel((LeaseState::Held { renewed }, 0));
        (Self(sender), LeaseWatch(receiver))
    }

    pub(super) fn held(&self, renewed: Instant) {
        self.0
            .send_modify(|(state, _)| *state = LeaseState::Held { renewed });
    }

    /// Returns whether the previous renewal was answered.
    pub(super) fn unanswered(&self, since: Instant, answer: &str) -> bool {
        let mut is_first = false;
        self.0.send_modify(|(state, absences)| match state {
            LeaseState::Unanswered { why, .. } => answer.clone_into(why),
            LeaseState::Held { .. } | LeaseState::Lost { .. } => {
                is_first = true;
                *absences += 1;
                *state = LeaseState::Unanswered {
                    since,
                    why: answer.to_owned(),
                    expires: false,
                };
            }
        });
        is_first
    }

    pub(super) fn expires(&self) {
        self.0.send_if_modified(|(state, _)| match state {
            LeaseState::Unanswered { expires, .. } => !std::mem::replace(expires, true),
            LeaseState::Held { .. } | LeaseState::Lost { .. } => false,
        });
    }

    pub(super) fn lost(&self, why: String) {
        self.0.send_modify(|(state, _)| *state = LeaseState::Lost { why });
    }
}
