//! The part of HTTP/1.1 that an answer needs: request `GET /?nonce=N`, response the [`Answer`](oracle::history::Answer)
//! as JSON.
//!
//! With it any HTTP client (`curl http://10.96.0.10/`) sees which backend answers, and keep-alive can be tested.

use crate::wire::{MAX_NONCE, Request};

/// Longest head of a request or a response, in bytes.
pub(crate) const MAX_HEAD: usize = 8 << 10;
const END: &[u8] = b"\r\n\r\n";

/// The requested resource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Requested {
    /// The identity: any path except `/readyz`.
    Identity(Request),
    /// `/readyz`: whether the server is ready.
    Ready {
        /// Further requests follow on this connection.
        keep: bool,
    },
}

/// Whether a line is the first of a request.
pub(crate) fn begins(line: &[u8]) -> bool {
    line.starts_with(b"GET ")
}

/// The request with a nonce, to a host.
pub(crate) fn request(nonce: &str, keep: bool, host: std::net::SocketAddr) -> Vec<u8> {
    get(&format!("/?nonce={nonce}"), keep, host)
}

/// The request for a path, to a host.
pub(crate) fn get(path: &str, keep: bool, host: std::net::SocketAddr) -> Vec<u8> {
    let connection = if keep { "keep-alive" } else { "close" };
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: {connection}\r\n\r\n").into_bytes()
}

/// Reads the head of a request; `None` if it is none.
pub(crate) fn parse(head: &[u8]) -> Option<Requested> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let ("GET", Some(target), Some(version)) = (words.next()?, words.next(), words.next()) else {
        return None;
    };
    // RFC 9112, 9.3: 1.1 keeps a connection by default, 1.0 does not.
    let connection = lines.find_map(|line| header(line, "connection"));
    let keep = match connection {
        Some(value) if value.eq_ignore_ascii_case("close") => false,
        Some(value) if value.eq_ignore_ascii_case("keep-alive") => true,
        _ => version == "HTTP/1.1",
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path == "/readyz" {
        return Some(Requested::Ready { keep });
    }
    let nonce = query.split('&').find_map(|pair| pair.strip_prefix("nonce="));
    let nonce = nonce.unwrap_or_default();
    (nonce.len() <= MAX_NONCE).then_some(Requested::Identity(Request {
        keep,
        ..Request::new(nonce)
    }))
}

/// A response with a JSON body.
pub(crate) fn response(status: &str, keep: bool, body: &[u8]) -> Vec<u8> {
    let connection = if keep { "keep-alive" } else { "close" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Takes a whole response out of the buffer and returns its body; the whole buffer if this client does not understand
/// the response (only 200 with a length). `None` while it is incomplete.
pub(crate) fn take_body(read: &mut Vec<u8>) -> Option<Vec<u8>> {
    take(read, "HTTP/1.1 200")
}

/// As [`take_body`], with any status: an API server refuses unknown users with a body, too.
pub(crate) fn take_any_body(read: &mut Vec<u8>) -> Option<Vec<u8>> {
    take(read, "HTTP/1.1 ")
}

fn take(read: &mut Vec<u8>, status: &str) -> Option<Vec<u8>> {
    let end = read.windows(END.len()).position(|window| window == END);
    let Some(end) = end.map(|at| at + END.len()) else {
        return (read.len() > MAX_HEAD).then(|| std::mem::take(read));
    };
    let length = std::str::from_utf8(&read[..end]).ok().and_then(|head| {
        let mut lines = head.split("\r\n");
        lines.next()?.strip_prefix(status)?;
        lines
            .find_map(|line| header(line, "content-length"))?
            .parse::<usize>()
            .ok()
    });
    let Some(whole) = length.and_then(|length| end.checked_add(length)) else {
        return Some(std::mem::take(read));
    };
    if read.len() < whole {
        return (read.len() > 2 * MAX_HEAD).then(|| std::mem::take(read));
    }
    let rest = read.split_off(whole);
    let response = std::mem::replace(read, rest);
    Some(response[end..].to_vec())
}

/// The value of a header line of this name.
fn header<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (found, value) = line.split_once(':')?;
    found.eq_ignore_ascii_case(name).then(|| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(nonce: &str, keep: bool) -> Option<Requested> {
        Some(Requested::Identity(Request {
            keep,
            ..Request::new(nonce)
        }))
    }

    #[test]
    fn a_request_gives_its_nonce_back() {
        let host = std::net::SocketAddr::from(([10, 96, 0, 10], 80));
        for keep in [false, true] {
            let request = request("c1-7", keep, host);
            assert!(begins(&request));
            assert_eq!(parse(&request), identity("c1-7", keep));
        }
    }

    #[test]
    fn requests_of_other_clients_are_understood() {
        let parsed = |head: &str| parse(head.as_bytes());
        assert_eq!(
            parsed("GET / HTTP/1.1\r\nUser-Agent: curl\r\n\r\n"),
            identity("", true)
        );
        assert_eq!(
            parsed("GET /a?b=c&nonce=n HTTP/1.0\r\n\r\n"),
            identity("n", false)
        );
        assert_eq!(
            parsed("GET /readyz HTTP/1.1\r\nconnection: Close\r\n\r\n"),
            Some(Requested::Ready { keep: false })
        );
        let long = format!("GET /?nonce={} HTTP/1.1\r\n\r\n", "n".repeat(MAX_NONCE + 1));
        for wrong in ["", "GET", "GET /", "PUT / HTTP/1.1\r\n\r\n", &long] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn responses_are_taken_one_by_one() {
        let one = response("200 OK", true, b"{\"a\":1}\n");
        let mut read = Vec::new();
        for byte in &one[..one.len() - 1] {
            read.push(*byte);
            assert_eq!(take_body(&mut read), None);
        }
        read.push(b'\n');
        read.extend_from_slice(&one);
        for _ in 0..2 {
            assert_eq!(take_body(&mut read).as_deref(), Some(&b"{\"a\":1}\n"[..]));
        }
        assert_eq!(take_body(&mut read), None);
    }

    #[test]
    fn a_refusal_has_a_body_too() {
        let refused = response("401 Unauthorized", true, b"{}");
        assert_eq!(take_body(&mut refused.clone()).as_deref(), Some(&refused[..]));
        assert_eq!(take_any_body(&mut refused.clone()).as_deref(), Some(&b"{}"[..]));
    }

    #[test]
    fn what_is_no_such_response_is_returned_whole() {
        for wrong in [
            &b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            &[b'x'; MAX_HEAD + 1],
        ] {
            let mut read = wrong.to_vec();
            assert_eq!(take_body(&mut read).as_deref(), Some(wrong));
        }
    }
}
