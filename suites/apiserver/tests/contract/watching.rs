//! A watch as raw text, event by event.

use bytes::BytesMut;
use http_body_util::BodyExt;
use kube::Client;
use serde_json::Value;

use crate::server::{LIMIT, TestServer};

/// A watch read line by line.
pub(crate) struct Watching {
    body: kube::client::Body,
    unread: BytesMut,
}

/// The server ended the answer in the middle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl Watching {
    /// A watch of a collection in the test's namespace.
    pub(crate) async fn of(server: &TestServer, plural: &str, query: &str) -> Self {
        Self::start(&server.client, &server.path(plural), query).await
    }

    /// A watch of a path.
    pub(crate) async fn start(client: &Client, path: &str, query: &str) -> Self {
        let request = hyper::Request::get(format!("{path}?watch=true&{query}"))
            .body(kube::client::Body::empty())
            .expect("a request");
        let response = client.send(request).await.expect("an answer");
        assert_eq!(response.status(), 200);
        Self {
            body: response.into_body(),
            unread: BytesMut::new(),
        }
    }

    /// The next event; `None` when the server has ended the watch.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        self.next_or_break().await.expect("a frame")
    }

    /// The same where the watch may break.
    pub(crate) async fn next_or_break(&mut self) -> Result<Option<Value>, Broken> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line = self.unread.split_to(end + 1);
                return Ok(Some(serde_json::from_slice(&line).expect("an event")));
            }
            let frame = tokio::time::timeout(LIMIT, self.body.frame())
                .await
                .expect("something in time");
            let Some(frame) = frame else {
                return Ok(None);
            };
            let data = frame.map_err(|_| Broken)?.into_data().unwrap_or_default();
            self.unread.extend_from_slice(&data);
        }
    }

    /// The next event's type and the object's name.
    pub(crate) async fn brief(&mut self) -> (String, String) {
        let event = self.next().await.expect("an event");
        brief(&event)
    }
}

/// An event's type and the object's name.
pub(crate) fn brief(event: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
}
