//! Addresses of API servers → events, as names are resolved anew.

use super::ApiServers;
use crate::{feed::Feed, model::Event};

impl ApiServers {
    /// Tells of [`addresses`](Self::addresses): [`Event::ApiServers`] at once and whenever they change.
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
                    // Whoever could change them is held by this.
                    _changed = addresses.changed() => {}
                }
            }
        })
    }
}
