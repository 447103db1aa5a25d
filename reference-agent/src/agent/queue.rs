//! The queue from feeds to the control loop.

use std::time::{Instant, SystemTime};

use tokio::sync::mpsc;

use super::EVENTS;
use crate::model::Event;

/// An event, and when it came.
#[derive(Debug)]
pub struct Arrival {
    /// The event.
    pub event: Event,
    /// When this process had it.
    pub at: Instant,
    /// When what it tells of happened in the cluster, as far as the object says.
    pub triggered: Option<SystemTime>,
}

/// Where feeds put events. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct EventSender(mpsc::Sender<Arrival>);

/// Nobody listens any more: the agent ends.
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
    /// Nobody listens any more.
    pub async fn send(&self, event: Event) -> Result<(), Closed> {
        self.send_triggered(event, None).await
    }

    /// As [`send`](Self::send), of an object that says when the change behind it happened.
    ///
    /// # Errors
    /// Nobody listens any more.
    pub async fn send_triggered(&self, event: Event, triggered: Option<SystemTime>) -> Result<(), Closed> {
        let at = Instant::now();
        let arrival = Arrival { event, at, triggered };
        self.0.send(arrival).await.map_err(|_| Closed)
    }

    /// Waits until nobody listens.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}
