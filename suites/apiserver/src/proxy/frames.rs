//! Framing of watch events: a line each, or each after its length.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::json;

use crate::{
    protobuf::{MAGIC, Wire, fields},
    status::Status,
};

/// One event: an object is 3 MiB at most (`--max-resource-write-bytes` of upstream), as JSON it may be longer.
const LONGEST_EVENT: usize = 16 << 20;
/// Annotation of the bookmark that ends the initial state of a watch (KEP-3157).
const END_OF_STATE: &[u8] = b"k8s.io/initial-events-end";

/// The framing of a watch's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// `application/json`: each is a line.
    Lines,
    /// `application/vnd.kubernetes.protobuf;stream=watch`: each is a `WatchEvent` after its length, four bytes.
    Lengths,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    /// A change.
    Change,
    /// A bookmark.
    Bookmark,
    /// The error that ends the watch.
    Error,
}

impl Framing {
    /// The framing of a media type, if it is known.
    pub(super) fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json" => Some(Self::Lines),
            "application/vnd.kubernetes.protobuf" => Some(Self::Lengths),
            _ => None,
        }
    }

    /// Takes the first event with its frame out of the received bytes; `None` if it is not complete.
    ///
    /// # Errors
    /// It is too long.
    pub(super) fn cut(self, come: &mut BytesMut) -> Result<Option<Bytes>, String> {
        let end = match self {
            Self::Lines => come.iter().position(|byte| *byte == b'\n').map(|at| at + 1),
            Self::Lengths => come.first_chunk().map(|length| {
                let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
                length.saturating_add(size_of::<u32>())
            }),
        };
        if end.unwrap_or(come.len()) > LONGEST_EVENT {
            return Err(format!(
                "expected events of at most {LONGEST_EVENT} bytes, found a longer one"
            ));
        }
        let whole = end.filter(|end| *end <= come.len());
        Ok(whole.map(|end| come.split_to(end).freeze()))
    }

    /// The kind of an event. One that can't be read counts as a change, so that a fault can drop it.
    pub(super) fn kind(self, event: &[u8]) -> EventKind {
        let name = match self {
            Self::Lines => serde_json::from_slice::<Typed<'_>>(event)
                .ok()
                .map(|event| event.kind.as_bytes()),
            Self::Lengths => {
                let event = event.get(size_of::<u32>()..).unwrap_or_default();
                let first = fields(event).next().and_then(Result::ok);
                first.and_then(|field| match field.wire {
                    Wire::Bytes(name) if field.number == 1 => Some(name),
                    _ => None,
                })
            }
        };
        match name {
            Some(b"BOOKMARK") => EventKind::Bookmark,
            Some(b"ERROR") => EventKind::Error,
            _ => EventKind::Change,
        }
    }

    /// Whether an event ends the initial state.
    pub(super) fn ends_state(self, event: &[u8]) -> bool {
        self.kind(event) == EventKind::Bookmark
            && event.windows(END_OF_STATE.len()).any(|part| part == END_OF_STATE)
    }

    /// The event that ends a watch with an error.
    pub(super) fn error(self, status: &Status) -> Bytes {
        match self {
            Self::Lines => Bytes::from(format!(
                "{}\n",
                json!({"type": "ERROR", "object": status.to_json()})
            )),
            Self::Lengths => {
                // Fields are those of `WatchEvent`, `RawExtension`, `Unknown`, `TypeMeta` and `Status` in generated.proto.
                let mut code = BytesMut::new();
                code.put_u8(6 << 3);
                varint(&mut code, u64::from(status.code().as_u16()));
                let body = [
                    field(2, b"Failure"),
                    field(3, status.to_string().as_bytes()),
                    field(4, status.reason().as_bytes()),
                    code.freeze(),
                ]
                .concat();
                let kind = [field(1, b"v1"), field(2, b"Status")].concat();
                let object = [MAGIC.to_vec(), [field(1, &kind), field(2, &body)].concat()].concat();
                let event = [field(1, b"ERROR"), field(2, &field(1, &object))].concat();
                let mut framed = BytesMut::new();
                framed.put_u32(u32::try_from(event.len()).unwrap_or(u32::MAX));
                framed.put_slice(&event);
                framed.freeze()
            }
        }
    }
}

#[derive(serde::Deserialize)]
struct Typed<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
}

/// A field of some bytes.
fn field(number: u8, bytes: &[u8]) -> Bytes {
    let mut field = BytesMut::new();
    field.put_u8((number << 3) | 2);
    varint(&mut field, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    field.put_slice(bytes);
    field.freeze()
}

fn varint(to: &mut BytesMut, mut value: u64) {
    while value > 0x7f {
        to.put_u8(0x80 | u8::try_from(value & 0x7f).unwrap_or_default());
        value >>= 7;
    }
    to.put_u8(u8::try_from(value).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(name: &str, object: &[u8]) -> Vec<u8> {
        let event = [field(1, name.as_bytes()), field(2, object)].concat();
        let length = u32::try_from(event.len()).expect("short");
        [&length.to_be_bytes()[..], &event].concat()
    }

    fn line(name: &str, text: &str) -> Vec<u8> {
        format!("{{\"type\":\"{name}\",\"object\":{{\"text\":\"{text}\"}}}}\n").into_bytes()
    }

    #[test]
    fn events_are_told_apart_wherever_they_are_broken() {
        let mark = "k8s.io/initial-events-end";
        let rows = [
            (
                Framing::Lines,
                [
                    line("ADDED", "a \\n b"),
                    line("BOOKMARK", mark),
                    line("ERROR", "c"),
                ],
            ),
            (
                Framing::Lengths,
                [
                    framed("ADDED", &[b'\n'; 300]),
                    framed("BOOKMARK", mark.as_bytes()),
                    framed("ERROR", b""),
                ],
            ),
        ];
        for (framing, events) in rows {
            let all = events.concat();
            for split in 0..=all.len() {
                let mut come = BytesMut::from(&all[..split]);
                let mut found = Vec::new();
                while let Some(event) = framing.cut(&mut come).expect("short") {
                    found.push(event);
                }
                come.extend_from_slice(&all[split..]);
                while let Some(event) = framing.cut(&mut come).expect("short") {
                    found.push(event);
                }
                assert_eq!(found, events, "{framing:?}, broken at {split}");
                let kinds: Vec<EventKind> = found.iter().map(|event| framing.kind(event)).collect();
                assert_eq!(kinds, [EventKind::Change, EventKind::Bookmark, EventKind::Error]);
                let ends: Vec<bool> = found.iter().map(|event| framing.ends_state(event)).collect();
                assert_eq!(ends, [false, true, false]);
            }
        }
    }

    #[test]
    fn an_event_longer_than_any_is_refused() {
        let mut announced = BytesMut::from(&[0xff; 5][..]);
        assert!(Framing::Lengths.cut(&mut announced).is_err());
        let mut endless = BytesMut::zeroed(LONGEST_EVENT + 1);
        assert!(Framing::Lines.cut(&mut endless).is_err());
    }

    #[test]
    fn an_end_is_said_in_the_form_of_the_watch() {
        let status = Status::expired(7, 8);
        let said = Framing::Lines.error(&status);
        let event: serde_json::Value = serde_json::from_slice(&said).expect("a line");
        assert_eq!(
            (&event["type"], &event["object"]["code"]),
            (&json!("ERROR"), &json!(410))
        );
        let mut said = BytesMut::from(&Framing::Lengths.error(&status)[..]);
        let event = Framing::Lengths.cut(&mut said).expect("short").expect("whole");
        assert!(said.is_empty());
        assert_eq!(Framing::Lengths.kind(&event), EventKind::Error);
        // 410 as a varint, in field 6.
        assert!(event.ends_with(&[0x30, 0x9a, 0x03]), "{event:?}");
    }

    #[test]
    fn other_media_types_have_no_framing_here() {
        assert_eq!(Framing::of("application/json"), Some(Framing::Lines));
        let protobuf = "application/vnd.kubernetes.protobuf;stream=watch";
        assert_eq!(Framing::of(protobuf), Some(Framing::Lengths));
        assert_eq!(Framing::of("application/cbor-seq"), None);
    }
}
