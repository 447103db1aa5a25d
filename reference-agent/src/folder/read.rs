//! One file → objects.

use std::{collections::BTreeSet, fs, path::Path, time::SystemTime};

use serde_json::Value;

use super::{SIZE, malformed};
use crate::{
    decode::{Decoded, Defect},
    findings::Finding,
    model::{Event, Kind, Node, Service, ServiceCidr, Slice},
    names::ObjectName,
    reflect::{Reflected, triggered},
};

/// An object in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileObject {
    pub(super) kind: Kind,
    pub(super) name: ObjectName,
    pub(super) event: Event,
    pub(super) triggered: Option<SystemTime>,
    pub(super) findings: Vec<Finding>,
}

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) objects: Vec<FileObject>,
    /// About objects without a name or a kind.
    pub(super) findings: Vec<Finding>,
    /// Kinds of the other objects.
    pub(super) ignored: BTreeSet<String>,
}

/// Why nothing of a file can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("it can't be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("it has {0} bytes; {SIZE} are read at most")]
    TooLarge(u64),
    #[error("it is no JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it is no YAML: {0}")]
    Yaml(#[from] serde_saphyr::Error),
}

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Contents, ReadError> {
    let length = fs::metadata(path)?.len();
    if length > SIZE {
        return Err(ReadError::TooLarge(length));
    }
    let text = fs::read_to_string(path)?;
    let mut contents = Contents::default();
    for (index, document) in documents(path, &text)?.iter().enumerate() {
        take(document, &format!("document {}", index + 1), &mut contents);
    }
    Ok(contents)
}

fn documents(path: &Path, text: &str) -> Result<Vec<Value>, ReadError> {
    if path.extension().is_some_and(|extension| extension == "json") {
        let documents = serde_json::Deserializer::from_str(text).into_iter();
        return Ok(documents.collect::<Result<_, _>>()?);
    }
    // Room for the objects of a large cluster; the limits of the library are for configuration files.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 1_000_000,
            max_events: 100_000_000,
            max_nodes: 100_000_000,
            max_total_scalar_bytes: 256 << 20,
        },
        with_snippet: false,
    };
    Ok(serde_saphyr::from_multiple_with_options(text, options)?)
}

/// Takes an object, or the items of a List.
fn take(object: &Value, place: &str, contents: &mut Contents) {
    let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    match (version, kind) {
        // Between two separators, or a comment alone.
        _ if object.is_null() => {}
        (Some("v1"), Some("Service")) => decode::<Service>(object, place, contents),
        (Some("discovery.k8s.io/v1"), Some("EndpointSlice")) => decode::<Slice>(object, place, contents),
        (Some("v1"), Some("Node")) => decode::<Node>(object, place, contents),
        (Some("networking.k8s.io/v1"), Some("ServiceCIDR")) => decode::<ServiceCidr>(object, place, contents),
        (Some(version), Some(kind)) => match (kind.strip_suffix("List"), object["items"].as_array()) {
            (Some(of), Some(items)) => {
                for (index, item) in items.iter().enumerate() {
                    take(
                        &typed(item, version, of),
                        &format!("{place}, items[{index}]"),
                        contents,
                    );
                }
            }
            _ => {
                contents.ignored.insert(format!("{kind} ({version})"));
            }
        },
        _ => {
            let problem = format!("{place}: it has no apiVersion and kind; left out");
            contents.findings.push(malformed(problem));
        }
    }
}

/// Items of a typed list need not repeat its type.
fn typed(item: &Value, version: &str, kind: &str) -> Value {
    let mut item = item.clone();
    if let Some(fields) = item.as_object_mut()
        && !kind.is_empty()
    {
        fields.entry("apiVersion").or_insert_with(|| version.into());
        fields.entry("kind").or_insert_with(|| kind.into());
    }
    item
}

fn decode<T: Reflected>(object: &Value, place: &str, contents: &mut Contents) {
    let mut object = object.clone();
    if T::KIND.is_namespaced()
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.entry("namespace").or_insert_with(|| "default".into());
    }
    let reject = |defect: Defect| malformed(format!("{place}: {defect}"));
    match T::decode(&object) {
        Ok(Decoded {
            object: read,
            defects,
        }) => contents.objects.push(FileObject {
            kind: T::KIND,
            name: read.name(),
            event: read.applied(),
            triggered: triggered(&object),
            findings: defects.into_iter().map(Finding::from).collect(),
        }),
        Err(defect) => contents.findings.push(reject(defect)),
    }
}
