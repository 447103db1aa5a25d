//! Label and field selectors, parsed from their query form.

use serde_json::Value;

use crate::{kinds::Kind, status::Status};

/// One requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Labels {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
}

/// `labelSelector` and `fieldSelector` of one request; empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<Labels>,
    /// JSON pointer, wanted value, whether it must be equal.
    fields: Vec<(&'static str, String, bool)>,
}

impl Selector {
    /// Parses both.
    ///
    /// # Errors
    /// 400 with the part that can't be read, or the field that this kind can't be selected by.
    pub(crate) fn parse(kind: Kind, labels: &str, fields: &str) -> Result<Self, Status> {
        Ok(Self {
            labels: parse_labels(labels)?,
            fields: parse_fields(kind, fields)?,
        })
    }

    /// Selects one name, for a watch of one object by its path.
    pub(crate) fn require_name(&mut self, name: &str) {
        self.fields.push(("/metadata/name", name.to_owned(), true));
    }

    /// Whether it selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.iter().all(|requirement| requirement.matches(labels))
            && self.fields.iter().all(|(pointer, wanted, equal)| {
                let found = match object.pointer(pointer) {
                    Some(Value::String(text)) => text.clone(),
                    Some(Value::Null) | None => String::new(),
                    Some(other) => other.to_string(),
                };
                (found == *wanted) == *equal
            })
    }
}

impl Labels {
    fn matches(&self, labels: &Value) -> bool {
        let get = |key: &String| labels.get(key).and_then(Value::as_str);
        match self {
            Self::In(key, values) => get(key).is_some_and(|found| values.iter().any(|v| v == found)),
            // As upstream: an object without the key matches.
            Self::NotIn(key, values) => get(key).is_none_or(|found| values.iter().all(|v| v != found)),
            Self::Exists(key) => get(key).is_some(),
            Self::Missing(key) => get(key).is_none(),
        }
    }
}

fn parse_labels(text: &str) -> Result<Vec<Labels>, Status> {
    let mut all = Vec::new();
    for part in split_outside_brackets(text) {
        let part = part.trim();
        if part.is_empty() {
            if text.trim().is_empty() {
                continue;
            }
            return Err(unreadable(text, "found an empty requirement"));
        }
        all.push(parse_requirement(part).map_err(|why| unreadable(text, why))?);
    }
    Ok(all)
}

fn parse_requirement(part: &str) -> Result<Labels, &'static str> {
    let key = |text: &str| {
        let text = text.trim();
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        if text.is_empty() || !text.chars().all(fine) {
            Err("expected a label key")
        } else {
            Ok(text.to_owned())
        }
    };
    let one = |text: &str| vec![text.trim().to_owned()];
    if let Some(rest) = part.strip_suffix(')') {
        let (head, values) = rest.split_once('(').ok_or("expected '(' before ')'")?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        return match head.split_whitespace().collect::<Vec<_>>().as_slice() {
            [name, "in"] => Ok(Labels::In(key(name)?, values)),
            [name, "notin"] => Ok(Labels::NotIn(key(name)?, values)),
            _ => Err("expected KEY in (VALUES) or KEY notin (VALUES)"),
        };
    }
    if let Some((left, right)) = part.split_once("!=") {
        return Ok(Labels::NotIn(key(left)?, one(right)));
    }
    if let Some((left, right)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Labels::In(key(left)?, one(right)));
    }
    match part.strip_prefix('!') {
        Some(rest) => Ok(Labels::Missing(key(rest)?)),
        None => Ok(Labels::Exists(key(part)?)),
    }
}

fn split_outside_brackets(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn unreadable(text: &str, why: &str) -> Status {
    Status::bad_request(format!("unable to parse requirement: {why}, found: {text:?}"))
}

fn parse_fields(kind: Kind, text: &str) -> Result<Vec<(&'static str, String, bool)>, Status> {
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let split = part
            .split_once("!=")
            .map(|(field, value)| (field, value, false))
            .or_else(|| part.split_once("==").map(|(field, value)| (field, value, true)))
            .or_else(|| part.split_once('=').map(|(field, value)| (field, value, true)));
        let Some((field, value, equal)) = split else {
            return Err(Status::bad_request(format!(
                "invalid selector: {text:?}; can't understand {part:?}: expected FIELD=VALUE"
            )));
        };
        let Some(pointer) = pointer(kind, field.trim()) else {
            return Err(Status::bad_request(format!(
                "field label not supported: {field} (of {})",
                kind.info().plural
            )));
        };
        all.push((pointer, value.trim().to_owned(), equal));
    }
    Ok(all)
}

/// The fields upstream lets a kind be selected by.
fn pointer(kind: Kind, field: &str) -> Option<&'static str> {
    match (field, kind) {
        ("metadata.name", _) => Some("/metadata/name"),
        ("metadata.namespace", _) => Some("/metadata/namespace"),
        ("spec.nodeName", Kind::Pod) => Some("/spec/nodeName"),
        ("spec.restartPolicy", Kind::Pod) => Some("/spec/restartPolicy"),
        ("spec.schedulerName", Kind::Pod) => Some("/spec/schedulerName"),
        ("spec.serviceAccountName", Kind::Pod) => Some("/spec/serviceAccountName"),
        ("status.phase", Kind::Pod | Kind::Namespace) => Some("/status/phase"),
        ("status.podIP", Kind::Pod) => Some("/status/podIP"),
        ("status.nominatedNodeName", Kind::Pod) => Some("/status/nominatedNodeName"),
        ("spec.clusterIP", Kind::Service) => Some("/spec/clusterIP"),
        ("spec.type", Kind::Service) => Some("/spec/type"),
        ("involvedObject.kind", Kind::Event) => Some("/involvedObject/kind"),
        ("involvedObject.namespace", Kind::Event) => Some("/involvedObject/namespace"),
        ("involvedObject.name", Kind::Event) => Some("/involvedObject/name"),
        ("involvedObject.uid", Kind::Event) => Some("/involvedObject/uid"),
        ("involvedObject.apiVersion", Kind::Event) => Some("/involvedObject/apiVersion"),
        ("involvedObject.fieldPath", Kind::Event) => Some("/involvedObject/fieldPath"),
        ("reason", Kind::Event) => Some("/reason"),
        ("type", Kind::Event | Kind::Secret) => Some("/type"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors_select_what_upstream_selects() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}});
        let rows = [
            ("", true),
            ("app=web", true),
            ("app==web,tier=front", true),
            ("app!=web", false),
            ("missing!=web", true),
            ("app in (db, web)", true),
            ("app in (db)", false),
            ("app notin (db,cache),tier", true),
            ("missing notin (a)", true),
            ("!missing", true),
            ("!app", false),
            ("app", true),
            ("app=", false),
        ];
        for (text, expected) in rows {
            let selector = Selector::parse(Kind::Pod, text, "").expect(text);
            assert_eq!(selector.matches(&object), expected, "{text}");
        }
        for text in [
            "app in web",
            "a b",
            ",",
            "app=web,",
            "rank>6",
            "()",
            "in (a)",
            "=a",
        ] {
            assert!(
                Selector::parse(Kind::Pod, text, "").is_err(),
                "{text:?} is accepted"
            );
        }
    }

    #[test]
    fn field_selectors_know_their_fields_only() {
        let object = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "n1"}});
        let rows = [
            ("metadata.name=a", true),
            ("metadata.name!=a", false),
            ("metadata.namespace==n,spec.nodeName=n1", true),
            ("status.phase=", true),
            ("status.phase=Running", false),
        ];
        for (text, expected) in rows {
            let selector = Selector::parse(Kind::Pod, "", text).expect(text);
            assert_eq!(selector.matches(&object), expected, "{text}");
        }
        assert!(Selector::parse(Kind::Service, "", "spec.nodeName=a").is_err());
        assert!(Selector::parse(Kind::Pod, "", "metadata.name").is_err());
    }
}
