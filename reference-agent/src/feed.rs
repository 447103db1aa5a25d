//! Feeds: where events come from, and the queue that carries them to the control loop.
//!
//! # Bounds
//! [`EVENTS`] in the queue. A full queue slows the feeds down.

use std::time::{Instant, SystemTime};

use futures::future::BoxFuture;
use tokio::sync::mpsc;

use crate::model::Event;

/// Events that wait for the control loop.
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

/// An event, and when it came.
#[derive(Debug)]
pub struct Arrival {
    /// The event.
    pub event: Event,
    /// When this process received it.
    pub at: Instant,
    /// When the change behind it happened in the cluster, if the object says so.
    pub triggered: Option<SystemTime>,
}

/// The sending end of the queue. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct EventSender(mpsc::Sender<Arrival>);

/// The queue is closed: the agent ends.
#[derive(Debug, thiserror::Error)]
#[error("the control loop has ended")]
pub struct Closed;

/// A queue of [`EVENTS`] events.
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
        self.send_triggered(event, None).await
    }

    /// As [`send`](Self::send), of an object that says when the change behind it happened.
    ///
    /// # Errors
    /// The queue is closed.
    pub async fn send_triggered(&self, event: Event, triggered: Option<SystemTime>) -> Result<(), Closed> {
        let at = Instant::now();
        let arrival = Arrival { event, at, triggered };
        self.0.send(arrival).await.map_err(|_| Closed)
    }

    /// Waits until the queue is closed.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}
