//! Feeds: where events come from, and the queue that carries them to the control loop.
//!
//! # Bounds
//! [`EVENTS`] in the queue. A full queue slows the feeds down.

use std::time::{Instant, SystemTime};

use futures::future::BoxFuture;
use tokio::sync::mpsc;

use crate::model::Event;

/// Arrivals that wait for the control loop.
pub const EVENTS: usize = 1024;

/// A source of events. It runs until the queue is closed, or until it has no more events.
pub struct Feed(Box<dyn FnOnce(EventSender) -> BoxFuture<'static, ()> + Send>);

impl Feed {
    /// A feed that sends what `run` sends.
    pub fn new<F, R>(run: F) -> Self
    where
        F: FnOnce(EventSender) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Self(Box::new(move |events| Box::pin(run(events))))
    }

    /// Runs until the queue is closed, or until there are no more events.
    pub fn run(self, events: EventSender) -> BoxFuture<'static, ()> {
        (self.0)(events)
    }
}

/// Events that came at once, in the order in which they are to be applied. They are one list's: nothing is written between them.
#[derive(Debug)]
pub struct Arrival {
    /// The events; at least one.
    pub changes: Vec<Change>,
    /// When this process received them.
    pub at: Instant,
}

impl Arrival {
    /// The events alone.
    pub fn events(self) -> impl Iterator<Item = Event> {
        self.changes.into_iter().map(|change| change.event)
    }
}

/// An event, and when its cause happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The event.
    pub event: Event,
    /// When the change behind it happened in the cluster, if the object says so.
    pub triggered: Option<SystemTime>,
}

impl From<Event> for Change {
    fn from(event: Event) -> Self {
        Self {
            event,
            triggered: None,
        }
    }
}

/// The sending end of the queue. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct EventSender(mpsc::Sender<Arrival>);

/// The queue is closed: the agent ends.
#[derive(Debug, thiserror::Error)]
#[error("the control loop has ended")]
pub struct Closed;

/// A queue of [`EVENTS`] arrivals.
pub fn queue() -> (EventSender, mpsc::Receiver<Arrival>) {
    let (sender, receiver) = mpsc::channel(EVENTS);
    (EventSender(sender), receiver)
}

impl EventSender {
    /// Puts an event, and waits while the queue is full.
    ///
    /// # Errors
    /// The queue is closed.
    pub async fn send(&self, event: Event) -> Result<(), Closed> {
        self.send_at_once(vec![event.into()]).await
    }

    /// As [`send`](Self::send), of events between which nothing is to be written. Without any, it does nothing.
    ///
    /// # Errors
    /// The queue is closed.
    pub async fn send_at_once(&self, changes: Vec<Change>) -> Result<(), Closed> {
        if changes.is_empty() {
            return Ok(());
        }
        let at = Instant::now();
        self.0.send(Arrival { changes, at }).await.map_err(|_| Closed)
    }

    /// Waits until the queue is closed.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}
