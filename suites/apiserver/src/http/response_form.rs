//! The requested form of a response: the object itself, a table, or metadata alone.

use hyper::{
    header::{ACCEPT, HeaderValue},
    http::HeaderMap,
};

use crate::{printers::IncludeObject, status::Status};

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As it is.
    Object,
    /// `as=Table`; the `includeObject` parameter sets how much of the object is in a row.
    Table,
    /// `as=PartialObjectMetadata` or its list.
    Metadata,
}

const OFFERED: &str = "application/json";

/// The first form in `Accept` that this server supports.
pub(super) fn form(accept: Option<&HeaderValue>) -> Result<Form, Status> {
    let Some(text) = accept.and_then(|value| value.to_str().ok()) else {
        return Ok(Form::Object);
    };
    text.split(',')
        .find_map(one)
        .ok_or_else(|| Status::not_acceptable(OFFERED))
}

fn one(range: &str) -> Option<Form> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?;
    if !matches!(media, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let (mut wanted, mut version, mut group) = ("", "", "");
    for part in parts {
        match part.split_once('=') {
            Some(("as", value)) => wanted = value,
            Some(("v", value)) => version = value,
            Some(("g", value)) => group = value,
            _ => {}
        }
    }
    match (wanted, group, version) {
        ("", ..) => Some(Form::Object),
        ("Table", "meta.k8s.io", "v1") => Some(Form::Table),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => Some(Form::Metadata),
        _ => None,
    }
}

/// Whether aggregated discovery is requested.
pub(super) fn wants_aggregated(headers: &HeaderMap) -> bool {
    let text = headers
        .get(ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    text.split(',').any(|range| {
        range.contains("as=APIGroupDiscoveryList")
            && range.contains("g=apidiscovery.k8s.io")
            && range.split(';').any(|part| part.trim() == "v=v2")
    })
}

/// `includeObject`.
pub(super) fn include_object(text: &str) -> Result<IncludeObject, Status> {
    match text {
        "" | "Metadata" => Ok(IncludeObject::Metadata),
        "None" => Ok(IncludeObject::None),
        "Object" => Ok(IncludeObject::Object),
        other => Err(Status::bad_request(format!(
            "includeObject: expected \"Metadata\", \"None\" or \"Object\", found {other:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_can_be_served_is() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let rows = [
            (table.to_owned(), Some(Form::Table)),
            (format!("{table},application/json"), Some(Form::Table)),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json".to_owned(),
                Some(Form::Object),
            ),
            (
                "application/vnd.kubernetes.protobuf,application/json".to_owned(),
                Some(Form::Object),
            ),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1".to_owned(),
                Some(Form::Metadata),
            ),
            ("*/*".to_owned(), Some(Form::Object)),
            ("text/plain".to_owned(), None),
            ("application/vnd.kubernetes.protobuf".to_owned(), None),
        ];
        for (text, expected) in rows {
            let value = HeaderValue::from_str(&text).expect("a header");
            assert_eq!(form(Some(&value)).ok(), expected, "{text}");
        }
        assert_eq!(form(None), Ok(Form::Object));
    }
}
