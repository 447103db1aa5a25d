//! Manifests: YAML with places for what is known only at run time.
//!
//! A string that is `${name}` and nothing else is replaced by the value of that name, whatever its type; within
//! a longer string, by its text. A place without a value is an error.

use serde_json::Value;

use crate::verdict::Halt;

/// The objects of a manifest, their places not yet filled.
#[derive(Clone, Debug)]
pub struct Manifest {
    documents: Vec<Value>,
}

impl Manifest {
    /// Reads YAML documents.
    pub fn parse(yaml: &str) -> Result<Self, Halt> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml)
            .map_err(|error| Halt::Harness(format!("the manifest is no YAML: {error}")))?;
        Ok(Self { documents })
    }

    /// Objects whose name, as it is written in the manifest, is `name`, in their order.
    pub fn named(&self, name: &str, values: &Value) -> Result<Vec<Value>, Halt> {
        let found: Vec<&Value> = self
            .documents
            .iter()
            .filter(|object| object["metadata"]["name"] == name)
            .collect();
        if found.is_empty() {
            return Err(Halt::Harness(format!("the manifest has no object named {name}")));
        }
        found.into_iter().map(|object| fill(object, values)).collect()
    }
}

/// Fills the places of an object.
fn fill(template: &Value, values: &Value) -> Result<Value, Halt> {
    Ok(match template {
        Value::String(text) => string(text, values)?,
        Value::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| fill(item, values))
                .collect::<Result<_, _>>()?,
        ),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| Ok((name.clone(), fill(value, values)?)))
                .collect::<Result<_, Halt>>()?,
        ),
        other => other.clone(),
    })
}

fn string(text: &str, values: &Value) -> Result<Value, Halt> {
    let value = |name: &str| {
        values
            .get(name)
            .ok_or_else(|| Halt::Harness(format!("the manifest's ${{{name}}} has no value")))
    };
    let mut filled = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else {
            return Err(Halt::Harness(format!(
                "the manifest's {text:?} lacks a closing brace"
            )));
        };
        let found = value(&rest[start + 2..start + length])?;
        let tail = &rest[start + length + 1..];
        if filled.is_empty() && start == 0 && tail.is_empty() {
            return Ok(found.clone());
        }
        filled += &rest[..start];
        filled += &found.as_str().map_or_else(|| found.to_string(), str::to_owned);
        rest = tail;
    }
    Ok(Value::String(filled + rest))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::a_whole_place_keeps_its_type("${endpoints}", json!([{ "addresses": ["10.0.0.1"] }]))]
    #[case::a_number_stays_one("${port}", json!(8080))]
    #[case::within_a_text_it_is_text("${name}.${port}-x", json!("web.8080-x"))]
    #[case::no_place("plain $ text", json!("plain $ text"))]
    fn places_are_filled(#[case] template: &str, #[case] expected: Value) {
        let values = json!({ "endpoints": [{ "addresses": ["10.0.0.1"] }], "port": 8080, "name": "web" });
        assert_eq!(fill(&json!(template), &values).unwrap(), expected);
    }

    #[test]
    fn a_place_without_a_value_is_an_error() {
        let error = fill(&json!({ "a": ["${b}"] }), &json!({})).unwrap_err();
        assert_eq!(error.to_string(), "the manifest's ${b} has no value");
    }

    #[test]
    fn objects_are_found_by_the_name_that_is_written() {
        let yaml = "kind: Service\nmetadata: {name: t}\n---\nkind: EndpointSlice\nmetadata: {name: t}\n\
                    ---\nkind: Pod\nmetadata: {name: \"${name}\"}\n";
        let manifest = Manifest::parse(yaml).unwrap();
        assert_eq!(manifest.named("t", &json!({})).unwrap().len(), 2);
        let pods = manifest.named("${name}", &json!({ "name": "b1" })).unwrap();
        assert_eq!(pods[0]["metadata"]["name"], "b1");
        assert!(manifest.named("x", &json!({})).is_err());
    }
}
