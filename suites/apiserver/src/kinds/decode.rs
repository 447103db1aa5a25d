//! From JSON to an object of a kind: types checked, unknown fields found and dropped, empty values dropped
//! where upstream's encoding drops them.

use k8s_openapi::api::{
    coordination::v1 as coordination, core::v1, discovery::v1 as discovery, networking::v1 as networking,
};
use serde_ignored::Path;
use serde_json::{Map, Value};

use super::Kind;
use crate::status::Status;

/// An object, and the fields in it that its kind does not have.
pub(crate) struct Decoded {
    pub(crate) object: Value,
    /// Paths as upstream writes them: `spec.ports[0].prot`.
    pub(crate) unknown: Vec<String>,
}

/// Fields that are maps and vanish when empty; an empty *object* elsewhere means something (`emptyDir: {}`).
const MAPS: [&str; 13] = [
    "data",
    "binaryData",
    "stringData",
    "annotations",
    "labels",
    "selector",
    "nodeSelector",
    "matchLabels",
    "limits",
    "requests",
    "capacity",
    "allocatable",
    "overhead",
];

/// Checks the types in `object` and drops what its kind does not have.
///
/// # Errors
/// 400 where a value has another type than the field, or the object another kind than the path.
pub(crate) fn decode(kind: Kind, mut object: Value) -> Result<Decoded, Status> {
    let info = kind.info();
    let Some(map) = object.as_object_mut() else {
        return Err(Status::bad_request(
            "couldn't get version/kind; json parse error: expected an object",
        ));
    };
    for (field, expected) in [("apiVersion", info.api_version()), ("kind", info.kind.to_owned())] {
        let found = map.entry(field).or_insert(Value::Null);
        if found.is_null() || *found == "" {
            *found = Value::String(expected);
        } else if *found != expected.as_str() {
            let text = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
            return Err(Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): expected {field} {expected:?}, found \
                 {text:?}",
                info.kind
            )));
        }
    }
    strip(map, Empty::Null);
    let mut ignored = Vec::new();
    let typed = match kind {
        Kind::ConfigMap => read::<v1::ConfigMap>(&object, &mut ignored),
        Kind::Lease => read::<coordination::Lease>(&object, &mut ignored),
        Kind::Secret => read::<v1::Secret>(&object, &mut ignored),
        Kind::ServiceAccount => read::<v1::ServiceAccount>(&object, &mut ignored),
        Kind::EndpointSlice => read::<discovery::EndpointSlice>(&object, &mut ignored),
        Kind::Event => read::<v1::Event>(&object, &mut ignored),
        Kind::Namespace => read::<v1::Namespace>(&object, &mut ignored),
        Kind::Node => read::<v1::Node>(&object, &mut ignored),
        Kind::Pod => read::<v1::Pod>(&object, &mut ignored),
        Kind::Service => read::<v1::Service>(&object, &mut ignored),
        Kind::ServiceCidr => read::<networking::ServiceCIDR>(&object, &mut ignored),
    };
    if let Err(error) = typed {
        return Err(Status::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: json: {error}",
            info.kind, info.version, info.kind
        )));
    }
    let mut unknown = Vec::with_capacity(ignored.len());
    for path in &ignored {
        unknown.push(display(path));
        remove(&mut object, path);
    }
    if let Some(map) = object.as_object_mut() {
        strip(map, Empty::Any);
    }
    Ok(Decoded { object, unknown })
}

/// A field name or an index.
enum Segment {
    Field(String),
    Index(usize),
}

fn read<'a, T: serde::Deserialize<'a>>(
    object: &'a Value,
    ignored: &mut Vec<Vec<Segment>>,
) -> Result<(), serde_json::Error> {
    serde_ignored::deserialize::<_, _, T>(object, |path| ignored.push(segments(&path))).map(drop)
}

fn segments(path: &Path<'_>) -> Vec<Segment> {
    let (parent, last) = match path {
        Path::Root => return Vec::new(),
        Path::Seq { parent, index } => (parent, Some(Segment::Index(*index))),
        Path::Map { parent, key } => (parent, Some(Segment::Field(key.clone()))),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            (parent, None)
        }
    };
    let mut all = segments(parent);
    all.extend(last);
    all
}

fn display(path: &[Segment]) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Index(index) => text.push_str(&format!("[{index}]")),
            Segment::Field(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
        }
    }
    text
}

fn remove(object: &mut Value, path: &[Segment]) {
    let Some((Segment::Field(last), parents)) = path.split_last() else {
        return;
    };
    let parent = parents.iter().try_fold(object, |value, segment| match segment {
        Segment::Field(name) => value.get_mut(name),
        Segment::Index(index) => value.get_mut(index),
    });
    if let Some(Value::Object(map)) = parent {
        map.remove(last);
    }
}

/// What counts as nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Empty {
    /// Nulls.
    Null,
    /// Nulls, empty lists and empty maps.
    Any,
}

/// Drops what is empty, as `omitempty` does.
fn strip(map: &mut Map<String, Value>, empty: Empty) {
    map.retain(|name, value| {
        // Field sets are data: `{}` in them means "owned".
        if name == "fieldsV1" {
            return true;
        }
        walk(value, empty);
        match value {
            Value::Null => false,
            Value::Array(list) => empty == Empty::Null || !list.is_empty(),
            Value::Object(inner) => {
                empty == Empty::Null || !inner.is_empty() || !MAPS.contains(&name.as_str())
            }
            _ => true,
        }
    });
}

fn walk(value: &mut Value, empty: Empty) {
    match value {
        Value::Object(map) => strip(map, empty),
        Value::Array(list) => list.iter_mut().for_each(|value| walk(value, empty)),
        _ => {}
    }
}
