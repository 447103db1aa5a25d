//! Bodies in protobuf: what Go clients write built-in kinds with.
//!
//! kubectl creates namespaces and services so (`kubectl create namespace`), and deletes. A body is an envelope
//! around one message; the message is turned into the JSON that the same client would have sent. `wire` reads
//! the encoding, `schema` names the fields of the kinds that clients write so: all but Pod and Node, and DeleteOptions. Answers are JSON always, which every client accepts.

mod schema;
#[cfg(test)]
mod tests;
mod wire;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value};

pub(crate) use self::wire::{Wire, fields};
use self::{
    schema::{Message, Shape},
    wire::Field,
};

/// What every body begins with (`k8s.io/apimachinery/pkg/runtime/serializer/protobuf`).
pub(crate) const MAGIC: &[u8] = b"k8s\0";
/// Messages in messages; the deepest kind here needs seven.
const DEEPEST: usize = 16;

/// The object in a body, or an error message.
pub(crate) fn decode(body: &[u8]) -> Result<Value, String> {
    let envelope = body
        .strip_prefix(MAGIC)
        .ok_or("expected a Kubernetes protobuf body, which begins with k8s\\0")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in wire::fields(envelope) {
        match field? {
            Field {
                number: 1,
                wire: Wire::Bytes(type_meta),
            } => {
                for field in wire::fields(type_meta) {
                    match field? {
                        Field {
                            number: 1,
                            wire: Wire::Bytes(text),
                        } => api_version = utf8(text)?,
                        Field {
                            number: 2,
                            wire: Wire::Bytes(text),
                        } => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            Field {
                number: 2,
                wire: Wire::Bytes(object),
            } => raw = object,
            _ => {}
        }
    }
    let Some(message) = schema::of_kind(&kind) else {
        return Err(format!(
            "this server reads {kind:?} as JSON only; send application/json"
        ));
    };
    let mut object = read(message, raw, 0)?;
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    Ok(Value::Object(object))
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|error| format!("found text that is not UTF-8: {error}"))
}

fn read(message: Message, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, String> {
    if depth > DEEPEST {
        return Err(format!("found messages nested deeper than {DEEPEST}"));
    }
    let mut object = Map::new();
    for field in wire::fields(bytes) {
        let field = field?;
        // A field that this server does not know is one that it would drop.
        let Some((_, name, shape)) = message.iter().find(|(number, ..)| *number == field.number) else {
            continue;
        };
        let unexpected = || format!("field {name:?} has another wire type than expected");
        match (shape, field.wire) {
            (Shape::Text, Wire::Bytes(text)) => {
                // Go writes empty strings too; in JSON they are left out.
                if !text.is_empty() {
                    object.insert((*name).into(), utf8(text)?.into());
                }
            }
            (Shape::OptionalText, Wire::Bytes(text)) => {
                object.insert((*name).into(), utf8(text)?.into());
            }
            (Shape::Number, Wire::Number(0)) | (Shape::Flag, Wire::Number(0)) => {}
            (Shape::Number | Shape::OptionalNumber, Wire::Number(number)) => {
                // int32 and int64 are sign-extended varints.
                object.insert((*name).into(), number.cast_signed().into());
            }
            (Shape::Flag | Shape::OptionalFlag, Wire::Number(flag)) => {
                object.insert((*name).into(), (flag != 0).into());
            }
            (Shape::Texts, Wire::Bytes(text)) => push(&mut object, name, utf8(text)?.into()),
            (Shape::Message(inner), Wire::Bytes(bytes)) => {
                object.insert((*name).into(), read(inner, bytes, depth + 1)?.into());
            }
            (Shape::Messages(inner), Wire::Bytes(bytes)) => {
                push(&mut object, name, read(inner, bytes, depth + 1)?.into());
            }
            (Shape::TextMap, Wire::Bytes(bytes)) => {
                let entry = read(schema::ENTRY, bytes, depth + 1)?;
                let text = |field: &str| {
                    entry
                        .get(field)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_owned()
                };
                let map = object.entry(*name).or_insert_with(|| Value::Object(Map::new()));
                map[text("key")] = text("value").into();
            }
            (Shape::BytesMap, Wire::Bytes(bytes)) => {
                let (key, value) = bytes_entry(bytes)?;
                let map = object.entry(*name).or_insert_with(|| Value::Object(Map::new()));
                map[key] = BASE64_STANDARD.encode(value).into();
            }
            (Shape::Time { micro }, Wire::Bytes(bytes)) => {
                if let Some(time) = time(bytes, *micro, depth)? {
                    object.insert((*name).into(), time.into());
                }
            }
            (Shape::IntOrText, Wire::Bytes(bytes)) => {
                let parts = read(schema::INT_OR_STRING, bytes, depth + 1)?;
                let value = if parts.contains_key("type") {
                    parts.get("strVal")
                } else {
                    parts.get("intVal")
                };
                object.insert((*name).into(), value.cloned().unwrap_or_default());
            }
            _ => return Err(unexpected()),
        }
    }
    Ok(object)
}

fn push(object: &mut Map<String, Value>, name: &str, value: Value) {
    let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    if let Some(list) = list.as_array_mut() {
        list.push(value);
    }
}

/// One entry of a map whose values are bytes.
fn bytes_entry(bytes: &[u8]) -> Result<(String, &[u8]), String> {
    let (mut key, mut value) = (String::new(), &[][..]);
    for field in wire::fields(bytes) {
        match field? {
            Field {
                number: 1,
                wire: Wire::Bytes(text),
            } => key = utf8(text)?,
            Field {
                number: 2,
                wire: Wire::Bytes(bytes),
            } => value = bytes,
            _ => {}
        }
    }
    Ok((key, value))
}

/// A time as the API writes it; an empty message is no time.
fn time(bytes: &[u8], micro: bool, depth: usize) -> Result<Option<String>, String> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let parts = read(schema::TIMESTAMP, bytes, depth + 1)?;
    let number = |field: &str| parts.get(field).and_then(Value::as_i64).unwrap_or(0);
    let nanos =
        i32::try_from(number("nanos")).map_err(|error| format!("found an impossible time: {error}"))?;
    let time = jiff::Timestamp::new(number("seconds"), nanos)
        .map_err(|error| format!("found an impossible time: {error}"))?;
    let format = if micro {
        "%Y-%m-%dT%H:%M:%S.%6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Ok(Some(time.strftime(format).to_string()))
}
