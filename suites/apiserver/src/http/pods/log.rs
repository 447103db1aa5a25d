//! `pods/log`: the requested lines of a container's log (`pkg/kubelet/kuberuntime/logs`).

use std::io;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use jiff::{SignedDuration, Timestamp};

use super::{Api, PodRequest, container_name, on_node, refused};
use crate::{
    http::query::Query,
    kubelet::{Container, LogLine},
    respond::{self, Body},
    status::{FieldError, Status},
};

const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain");

/// `PodLogOptions`.
struct Options {
    follow: bool,
    previous: bool,
    timestamps: bool,
    tail_lines: Option<usize>,
    since: Option<Timestamp>,
    limit_bytes: Option<usize>,
}

impl Api {
    pub(super) async fn log(&self, asked: &PodRequest, query: &Query) -> Result<Response<Body>, Status> {
        let options = Options::parse(query, &asked.name)?;
        let pod = self.pod(&asked.namespace, &asked.name)?;
        let name = container_name(&pod.value, query.get("container"))?;
        let Some(pod) = on_node(&pod.value) else {
            // It has no node yet, so it has no log.
            let mut empty = respond::bytes(200, Bytes::new());
            *empty.status_mut() = StatusCode::NO_CONTENT;
            return Ok(empty);
        };
        let kubelet = self.kubelet(&pod)?;
        let container = Container { pod, name };
        let log = kubelet
            .log(&container, options.previous, options.follow)
            .await
            .map_err(|error| refused(&error, &container))?;
        let mut written = log.written;
        if let Some(most) = options.tail_lines {
            written.drain(..written.len().saturating_sub(most));
        }
        let following = log.following.filter(|_| options.follow);
        let shutdown = self.shutdown.clone();
        // Following ends at once with the replica, as watches do. Earlier lines are sent completely.
        let following = futures::stream::iter(following)
            .flatten()
            .take_until(async move { shutdown.cancelled().await });
        let lines = futures::stream::iter(written).chain(following);
        let mut response = respond::stream(options.show(lines));
        response.headers_mut().insert(CONTENT_TYPE, PLAIN_TEXT);
        Ok(response)
    }
}

impl Options {
    fn parse(query: &Query, pod: &str) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let mut number = |field: &str, least: i64, words: &str| -> Result<Option<usize>, Status> {
            let text = query.get(field);
            if text.is_empty() {
                return Ok(None);
            }
            let found: i64 = text.parse().map_err(|_| {
                Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            })?;
            if found < least {
                errors.push(FieldError::invalid(field, &found.into(), words));
            }
            Ok(usize::try_from(found).ok())
        };
        let tail_lines = number("tailLines", 0, "must be greater than or equal to 0")?;
        let limit_bytes = number("limitBytes", 1, "must be greater than 0")?;
        let seconds = number("sinceSeconds", 1, "must be greater than 0")?;
        let time: Option<Timestamp> = match query.get("sinceTime") {
            "" => None,
            text => Some(text.parse().map_err(|error| {
                Status::bad_request(format!("parsing time {text:?} as RFC 3339: {error}"))
            })?),
        };
        if seconds.is_some() && time.is_some() {
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.insert(0, FieldError::forbidden("[]", why));
        }
        if !errors.is_empty() {
            return Err(Status::invalid("", "PodLogOptions", pod, &errors));
        }
        let ago = seconds.and_then(|seconds| i64::try_from(seconds).ok());
        let ago = ago.map(SignedDuration::from_secs);
        Ok(Self {
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            tail_lines,
            // A time that can't be represented is no limit.
            since: time.or_else(|| Timestamp::now().checked_sub(ago?).ok()),
            limit_bytes,
        })
    }

    /// The lines as they are sent, up to the limit of bytes.
    fn show(
        self,
        lines: impl Stream<Item = LogLine> + Send + 'static,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let since = self.since;
        let new =
            lines.filter(move |line| futures::future::ready(since.is_none_or(|since| line.at >= since)));
        new.scan(self.limit_bytes, move |left, line| {
            let mut text = BytesMut::new();
            if self.timestamps {
                text.extend_from_slice(format!("{:.9} ", line.at).as_bytes());
            }
            text.extend_from_slice(&line.text);
            let chunk = match left {
                Some(0) => None,
                Some(left) => {
                    text.truncate(*left);
                    *left -= text.len();
                    Some(text.freeze())
                }
                None => Some(text.freeze()),
            };
            futures::future::ready(chunk.map(Ok))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seconds: i64, text: &str) -> LogLine {
        LogLine {
            at: Timestamp::from_second(seconds).expect("a time"),
            text: Bytes::copy_from_slice(text.as_bytes()),
        }
    }

    async fn shown(query: &str) -> String {
        let options = Options::parse(&Query::parse(query), "p").expect("options");
        let lines = futures::stream::iter([line(1, "one\n"), line(2, "two\n"), line(3, "three\n")]);
        let chunks: Vec<Bytes> = options
            .show(lines)
            .map(|chunk| chunk.expect("a chunk"))
            .collect()
            .await;
        String::from_utf8(chunks.concat()).expect("text")
    }

    #[tokio::test]
    async fn lines_are_chosen_by_time_and_cut_at_the_limit() {
        let rows = [
            ("", "one\ntwo\nthree\n"),
            ("sinceTime=1970-01-01T00:00:02Z", "two\nthree\n"),
            ("sinceSeconds=10", ""),
            ("limitBytes=6", "one\ntw"),
            ("limitBytes=4", "one\n"),
            (
                "sinceTime=1970-01-01T00:00:03Z&timestamps=true",
                "1970-01-01T00:00:03.000000000Z three\n",
            ),
        ];
        for (query, expected) in rows {
            assert_eq!(shown(query).await, expected, "{query}");
        }
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let rows = [
            ("tailLines=-1", 422),
            ("tailLines=x", 400),
            ("limitBytes=0", 422),
            ("sinceSeconds=0", 422),
            ("sinceTime=yesterday", 400),
            ("sinceSeconds=1&sinceTime=1970-01-01T00:00:03Z", 422),
        ];
        for (query, code) in rows {
            let refused = Options::parse(&Query::parse(query), "p")
                .err()
                .map(|status| status.code().as_u16());
            assert_eq!(refused, Some(code), "{query}");
        }
    }
}
