//! Addresses of API servers → events.

use super::ApiServers;
use crate::{feed::Feed, model::Event};

impl ApiServers {
    /// A feed of [`addresses`](Self::addresses): [`Event::ApiServers`] at once and whenever they change.
    pub fn feed(self) -> Feed {
        Feed::new(async move |events| {
            let mut addresses = self.follow();
            loop {
                let now = addresses.borrow_and_update().clone();
                if events.send(Event::ApiServers(now)).await.is_err() {
                    return;
                }
                tokio::select! {
                    () = events.closed() => return,
                    // The sender lives as long as `self`.
                    _changed = addresses.changed() => {}
                }
            }
        })
    }
}
