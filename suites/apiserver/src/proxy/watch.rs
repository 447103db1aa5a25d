//! Forwards a watch, with the faults for its client.

use std::{collections::VecDeque, io};

use bytes::{Bytes, BytesMut};
use futures::Stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::{sync::watch, time::Instant};

use super::frames::{EventKind, Framing};
use crate::{
    faults::{self, Client, Faults, WatchFaults},
    respond::Body,
    status::Status,
};

/// Most bytes of delayed events in one watch. Beyond, nothing is read from the server, which ends a watch that it can't write to.
const MOST_HELD: usize = 1 << 20;

/// The body of a watch that begins now. `state_first`: it begins with the state, and marks its end.
pub(super) fn body(
    body: Body,
    framing: Framing,
    state_first: bool,
    faults: &Faults,
    client: &Client,
) -> Body {
    let streaming = Streaming {
        body,
        framing,
        come: BytesMut::new(),
        held: VecDeque::new(),
        in_state: state_first,
        changes: faults.changes(),
        faults: faults.clone(),
        client: client.clone(),
        opened: Instant::now(),
        lost: false,
        is_read: false,
        ended: false,
    };
    StreamBody::new(frames(streaming)).boxed_unsync()
}

fn frames(streaming: Streaming) -> impl Stream<Item = io::Result<Frame<Bytes>>> + Send {
    futures::stream::unfold(streaming, |mut streaming| async move {
        let event = streaming.next().await?;
        Some((event.map(Frame::data), streaming))
    })
}

/// One watch under way.
struct Streaming {
    body: Body,
    framing: Framing,
    /// What is no whole event yet.
    come: BytesMut,
    /// Events that are not sent yet, with when they came.
    held: VecDeque<(Instant, Bytes)>,
    in_state: bool,
    faults: Faults,
    /// Changes of the active faults.
    changes: watch::Receiver<u64>,
    client: Client,
    opened: Instant,
    /// A fault has dropped one of its events.
    lost: bool,
    /// The server has ended the watch.
    is_read: bool,
    ended: bool,
}

impl Streaming {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        while !self.ended {
            self.changes.mark_unchanged();
            let met = self.faults.watch(&self.client, self.opened);
            if met.cut.is_some_and(|cut| cut <= Instant::now()) {
                self.ended = true;
                return Some(Err(faults::broken()));
            }
            if !self.in_state && (met.expire || (self.lost && !met.lose)) {
                self.ended = true;
                // The real versions are unknown here.
                return Some(Ok(self.framing.error(&Status::expired(0, 1))));
            }
            let first = self.held.front().map(|(came, _)| *came);
            if first.is_some_and(|came| self.in_state || met.horizon.shows(came)) {
                let (_, event) = self.held.pop_front()?;
                if self.framing.ends_state(&event) {
                    self.in_state = false;
                }
                return Some(Ok(event));
            }
            if first.is_none() && self.is_read {
                return None;
            }
            if let Err(error) = self.wait(&met, first).await {
                self.ended = true;
                return Some(Err(error));
            }
        }
        None
    }

    /// Waits until an event arrives or is due, or faults change.
    async fn wait(&mut self, met: &WatchFaults, first: Option<Instant>) -> io::Result<()> {
        let cut = async {
            match met.cut {
                Some(cut) => tokio::time::sleep_until(cut).await,
                None => std::future::pending().await,
            }
        };
        let due = async {
            match first {
                Some(came) => met.horizon.wait_for(came).await,
                None => std::future::pending().await,
            }
        };
        let has_room = self.held.iter().map(|(_, event)| event.len()).sum::<usize>() < MOST_HELD;
        tokio::select! {
            _ = self.changes.changed() => Ok(()),
            () = cut => Ok(()),
            () = due => Ok(()),
            frame = self.body.frame(), if has_room && !self.is_read => match frame {
                Some(frame) => self.take(frame?),
                None => {
                    self.is_read = true;
                    Ok(())
                }
            },
        }
    }

    fn take(&mut self, frame: Frame<Bytes>) -> io::Result<()> {
        let Ok(data) = frame.into_data() else {
            return Ok(());
        };
        self.come.extend_from_slice(&data);
        // A fault may have begun while this was awaited.
        let lose = self.faults.watch(&self.client, self.opened).lose;
        let (now, mut in_state) = (Instant::now(), self.in_state);
        while let Some(event) = self.framing.cut(&mut self.come).map_err(io::Error::other)? {
            let kind = self.framing.kind(&event);
            if lose && !in_state && kind != EventKind::Error {
                // Bookmarks are dropped too; they would skip the lost events.
                self.lost |= kind == EventKind::Change;
                continue;
            }
            in_state &= !self.framing.ends_state(&event);
            self.held.push_back((now, event));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::channel::mpsc;

    use super::*;
    use crate::faults::{Clients, Fault, FaultGuard};

    /// A watch whose server sends what the test sends.
    struct Under {
        faults: Faults,
        server: mpsc::UnboundedSender<io::Result<Frame<Bytes>>>,
        body: Body,
    }

    impl Under {
        fn new(state_first: bool) -> Self {
            let (server, events) = mpsc::unbounded();
            let (faults, client) = (
                Faults::new(),
                Client {
                    users: vec!["met".to_owned()],
                    source: [127, 0, 0, 1].into(),
                },
            );
            let server_body = StreamBody::new(events).boxed_unsync();
            let body = body(server_body, Framing::Lines, state_first, &faults, &client);
            Self { faults, server, body }
        }

        fn begin(&self, fault: Fault) -> FaultGuard {
            let met = Clients::User("met".to_owned());
            self.faults.begin(met, fault).expect("begun")
        }

        fn say(&self, text: &str) {
            let data = Bytes::from(text.to_owned());
            self.server.unbounded_send(Ok(Frame::data(data))).expect("read");
        }

        async fn hear(&mut self) -> Option<Result<String, io::ErrorKind>> {
            let frame = self.body.frame().await?;
            Some(frame.map_err(|error| error.kind()).map(|frame| {
                let data = frame.into_data().expect("data");
                String::from_utf8(data.to_vec()).expect("text")
            }))
        }

        async fn is_silent(&mut self) -> bool {
            tokio::time::timeout(Duration::from_millis(300), self.hear())
                .await
                .is_err()
        }
    }

    const ADDED: &str = "{\"type\":\"ADDED\",\"object\":{}}\n";
    const BOOKMARK: &str = "{\"type\":\"BOOKMARK\",\"object\":{}}\n";
    const STATE: &str = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"annotations\":\
                         {\"k8s.io/initial-events-end\":\"true\"}}}}\n";

    #[tokio::test]
    async fn lost_events_are_told_at_the_end_and_bookmarks_betray_none() {
        let mut watch = Under::new(true);
        let guard = watch.begin(Fault::DropEvents);
        watch.say(&[ADDED, STATE, BOOKMARK].concat());
        assert_eq!(
            watch.hear().await,
            Some(Ok(ADDED.to_owned())),
            "the state is no event"
        );
        assert_eq!(watch.hear().await, Some(Ok(STATE.to_owned())));
        assert!(watch.is_silent().await);
        drop(guard);
        assert!(watch.is_silent().await, "nothing but a bookmark is lost");
        let guard = watch.begin(Fault::DropEvents);
        watch.say(ADDED);
        assert!(watch.is_silent().await);
        drop(guard);
        let said = watch.hear().await.expect("an event").expect("no break");
        assert!(said.contains("\"code\":410"), "{said}");
        assert_eq!(watch.hear().await, None);
    }

    #[tokio::test]
    async fn late_events_come_in_order_and_at_once_when_the_fault_ends() {
        let mut watch = Under::new(false);
        let by = Duration::from_secs(2);
        let guard = watch.begin(Fault::DelayEvents { by });
        let begin = Instant::now();
        watch.say(BOOKMARK);
        assert!(watch.is_silent().await);
        watch.say(ADDED);
        assert_eq!(watch.hear().await, Some(Ok(BOOKMARK.to_owned())));
        assert!(begin.elapsed() >= by);
        drop(guard);
        assert_eq!(watch.hear().await, Some(Ok(ADDED.to_owned())));
        assert!(begin.elapsed() < by * 2, "the second is not waited for");
    }

    #[tokio::test]
    async fn no_more_is_held_than_may_be() {
        let mut watch = Under::new(false);
        let guard = watch.begin(Fault::DelayEvents {
            by: Duration::from_secs(2),
        });
        let long = format!(
            "{{\"type\":\"ADDED\",\"object\":\"{}\"}}\n",
            "a".repeat(MOST_HELD)
        );
        watch.say(&long);
        watch.say(ADDED);
        assert!(watch.is_silent().await);
        drop(watch.server);
        let frames: Vec<usize> = [watch.body.frame().await, watch.body.frame().await]
            .into_iter()
            .map(|frame| {
                frame
                    .expect("an event")
                    .expect("no break")
                    .into_data()
                    .expect("data")
                    .len()
            })
            .collect();
        assert_eq!(
            frames,
            [long.len(), ADDED.len()],
            "the rest is read when there is room"
        );
        assert!(watch.body.frame().await.is_none());
        drop(guard);
    }

    #[tokio::test]
    async fn cuts_and_ends_come_in_the_middle() {
        let mut watch = Under::new(false);
        let after = Duration::from_secs(1);
        let _guard = watch.begin(Fault::CutWatches { after });
        watch.say(ADDED);
        assert_eq!(watch.hear().await, Some(Ok(ADDED.to_owned())));
        assert_eq!(watch.hear().await, Some(Err(io::ErrorKind::ConnectionReset)));
        let mut watch = Under::new(false);
        let _guard = watch.begin(Fault::Expire);
        let said = watch.hear().await.expect("an event").expect("no break");
        assert!(said.contains("\"code\":410"), "{said}");
    }
}
