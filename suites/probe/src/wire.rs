//! What goes over a connection: one JSON line `{"nonce": …}` there, one JSON line [`Answer`] back.
//!
//! UDP: the same in one datagram each. A connection whose requests say `"keep": true` takes further ones; any other ends
//! with its answer.

use oracle::history::Answer;
use serde::{Deserialize, Serialize};

/// Longest nonce that a server repeats, in bytes.
pub const MAX_NONCE: usize = 128;
/// Longest request line, with its newline, in bytes.
pub const MAX_REQUEST: usize = 256;
/// Longest answer that a client reads, with its newline, in bytes.
pub const MAX_ANSWER: usize = 1024;
/// How much of something that is no answer is kept, in bytes.
const SAID: usize = 80;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// To be repeated in the answer.
    pub(crate) nonce: String,
    /// Further requests follow on this connection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keep: bool,
}

/// The request for a nonce.
pub(crate) fn request(nonce: &str, keep: bool) -> Vec<u8> {
    line(&Request {
        nonce: nonce.to_owned(),
        keep,
    })
}

/// A request, or nothing if it is none.
pub(crate) fn parse(bytes: &[u8]) -> Option<Request> {
    let request: Request = serde_json::from_slice(bytes).ok()?;
    (!request.nonce.is_empty() && request.nonce.len() <= MAX_NONCE).then_some(request)
}

/// Anything of ours as a line.
pub(crate) fn line<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, value);
    bytes
}

/// Adds anything of ours as a line.
pub(crate) fn write<T: Serialize>(bytes: &mut Vec<u8>, value: &T) {
    let begin = bytes.len();
    // These types have string keys and no fallible serializer, so this can't fail; an empty line would be
    // garbage at the other end, and be reported as such.
    if serde_json::to_writer(&mut *bytes, value).is_err() {
        bytes.truncate(begin);
    }
    bytes.push(b'\n');
}

/// An answer, or the beginning of what was said instead.
pub(crate) fn answer(bytes: &[u8]) -> Result<Answer, String> {
    serde_json::from_slice(bytes).map_err(|_| said(bytes))
}

/// The beginning of something, as text.
pub(crate) fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(SAID)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gives_its_nonce_back() {
        for keep in [false, true] {
            let read = parse(&request("c1-7", keep)).map(|request| (request.nonce, request.keep));
            assert_eq!(read, Some(("c1-7".to_owned(), keep)));
        }
    }

    #[test]
    fn what_is_no_request_has_no_nonce() {
        let long = request(&"n".repeat(MAX_NONCE + 1), false);
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"{}", b"{\"nonce\":\"\"}", b"", &long] {
            assert!(parse(bytes).is_none(), "{:?}", said(bytes));
        }
    }

    #[test]
    fn the_longest_request_fits() {
        assert!(request(&"n".repeat(MAX_NONCE), true).len() <= MAX_REQUEST);
    }

    #[test]
    fn what_is_no_answer_is_quoted_in_part() {
        let long = "x".repeat(500);
        assert_eq!(answer(long.as_bytes()), Err("x".repeat(SAID)));
        assert_eq!(answer(&[0xff, b'!']), Err("\u{fffd}!".to_owned()));
    }
}
