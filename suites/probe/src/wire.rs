//! What goes over a connection: the request is one JSON line `{"nonce": …}`, the response one JSON line [`Answer`].
//!
//! With UDP each is one datagram. A request with a size (`"bytes": …`) is a datagram of that size, and so is its
//! answer: behind the line follow bytes that are derived from the nonce, all of which the receiver checks. A connection
//! whose requests have `"keep": true` takes further ones; any other ends with its answer.
//!
//! A transfer is a request of TCP with so many such bytes behind its line (`"upload": …`), or behind that of its answer
//! (`"download": …`).

use oracle::history::Answer;
use serde::{Deserialize, Serialize};

/// Longest nonce that a server repeats, in bytes.
pub const MAX_NONCE: usize = 128;
/// Longest request line, with its newline, in bytes.
pub const MAX_REQUEST: usize = 256;
/// Longest answer that a client reads, with its newline, in bytes.
pub const MAX_ANSWER: usize = 1024;
/// Longest datagram, in bytes.
pub const MAX_DATAGRAM: usize = 4096;
/// Most bytes of a transfer, in each direction.
pub const MAX_TRANSFER: u32 = 16 << 20;
/// How much of another answer is kept, in bytes.
const SAID: usize = 80;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// Repeated in the answer.
    pub(crate) nonce: String,
    /// Further requests follow on this connection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keep: bool,
    /// Size of request and answer in bytes; 0: they end with their line.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) bytes: u16,
    /// The server logs a datagram, and does not answer it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) one_way: bool,
    /// Bytes that follow the request on its connection.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(crate) upload: u32,
    /// Bytes that are to follow the answer.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(crate) download: u32,
}

impl Request {
    /// That asks for nothing but its answer.
    pub(crate) fn new(nonce: &str) -> Self {
        Self {
            nonce: nonce.to_owned(),
            keep: false,
            bytes: 0,
            one_way: false,
            upload: 0,
            download: 0,
        }
    }
}

fn is_zero(bytes: &u16) -> bool {
    *bytes == 0
}

fn is_none(bytes: &u32) -> bool {
    *bytes == 0
}

/// The request with a nonce.
pub(crate) fn request(nonce: &str, keep: bool) -> Vec<u8> {
    line(&Request {
        keep,
        ..Request::new(nonce)
    })
}

/// The request with a nonce that asks for no answer.
pub(crate) fn one_way(nonce: &str) -> Vec<u8> {
    line(&Request {
        one_way: true,
        ..Request::new(nonce)
    })
}

/// The request of a transfer.
pub(crate) fn transfer(nonce: &str, upload: u32, download: u32) -> Vec<u8> {
    line(&Request {
        upload,
        download,
        ..Request::new(nonce)
    })
}

/// The request with a nonce in a datagram of this size, which the answer has too.
pub(crate) fn datagram(nonce: &str, bytes: u16) -> Vec<u8> {
    let line = line(&Request {
        bytes,
        ..Request::new(nonce)
    });
    filled(line, nonce, bytes)
}

/// A line, padded to a datagram of this size; unchanged if the size is 0.
pub(crate) fn filled(mut line: Vec<u8>, nonce: &str, bytes: u16) -> Vec<u8> {
    let missing = usize::from(bytes).saturating_sub(line.len());
    line.extend(octets(nonce).take(missing));
    line
}

/// Whether a datagram has this size and arrived unchanged; always if the size is 0.
pub(crate) fn is_whole(datagram: &[u8], nonce: &str, bytes: u16) -> bool {
    let line = first_line(datagram).len();
    bytes == 0
        || (datagram.len() == usize::from(bytes)
            && datagram[line..]
                .iter()
                .copied()
                .eq(octets(nonce).take(datagram.len() - line)))
}

/// Padding that differs between positions and between datagrams.
pub(crate) fn octets(nonce: &str) -> impl Iterator<Item = u8> {
    // FNV-1a, then Knuth's generator, of which the highest bits are the best.
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut state = nonce.bytes().fold(0xcbf2_9ce4_8422_2325, fold);
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    })
}

/// Everything up to the first newline, included.
fn first_line(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    end.map_or(bytes, |end| &bytes[..=end])
}

/// A request; `None` if it is none.
pub(crate) fn parse(bytes: &[u8]) -> Option<Request> {
    let request: Request = serde_json::from_slice(first_line(bytes)).ok()?;
    let is_small = request.upload.max(request.download) <= MAX_TRANSFER;
    (is_small && !request.nonce.is_empty() && request.nonce.len() <= MAX_NONCE).then_some(request)
}

/// A value as a JSON line.
pub(crate) fn line<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, value);
    bytes
}

/// Appends a value as a JSON line.
pub(crate) fn write<T: Serialize>(bytes: &mut Vec<u8>, value: &T) {
    let begin = bytes.len();
    // These types have string keys and no fallible serializer, so this cannot fail; an empty line would be reported as
    // garbled by the receiver.
    if serde_json::to_writer(&mut *bytes, value).is_err() {
        bytes.truncate(begin);
    }
    bytes.push(b'\n');
}

/// An answer, or the beginning of what was received instead.
pub(crate) fn answer(bytes: &[u8]) -> Result<Answer, String> {
    serde_json::from_slice(first_line(bytes)).map_err(|_| beginning(bytes))
}

/// The beginning of something, as text.
pub(crate) fn beginning(bytes: &[u8]) -> String {
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
        let much = transfer("n", MAX_TRANSFER, MAX_TRANSFER + 1);
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"{}",
            b"{\"nonce\":\"\"}",
            b"",
            &long,
            &much,
        ] {
            assert!(parse(bytes).is_none(), "{:?}", beginning(bytes));
        }
    }

    #[test]
    fn the_longest_request_fits() {
        let longest = line(&Request {
            nonce: "n".repeat(MAX_NONCE),
            keep: true,
            bytes: u16::MAX,
            one_way: true,
            upload: MAX_TRANSFER,
            download: MAX_TRANSFER,
        });
        assert!(longest.len() <= MAX_REQUEST);
    }

    #[test]
    fn a_datagram_is_whole_if_each_octet_is_in_its_place() {
        let whole = datagram("c1-7", 4000);
        let request = parse(&whole).unwrap();
        assert_eq!(
            (&*request.nonce, request.bytes, whole.len()),
            ("c1-7", 4000, 4000)
        );
        assert!(is_whole(&whole, "c1-7", 4000));
        let mut exchanged = whole.clone();
        exchanged[1480..2960].rotate_left(8);
        let mut other = whole.clone();
        other[1480..2960].copy_from_slice(&datagram("c1-8", 4000)[1480..2960]);
        let long = [&*whole, b"x"].concat();
        for damaged in [&exchanged, &other, &long, &whole[..3999].to_vec()] {
            assert!(!is_whole(damaged, "c1-7", 4000));
            assert!(is_whole(damaged, "c1-7", 0), "no size was requested");
        }
    }

    #[test]
    fn what_is_no_answer_is_quoted_in_part() {
        let long = "x".repeat(500);
        assert_eq!(answer(long.as_bytes()), Err("x".repeat(SAID)));
        assert_eq!(answer(&[0xff, b'!']), Err("\u{fffd}!".to_owned()));
    }
}
