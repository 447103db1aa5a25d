//! Empties an EndpointSlice as kube-apiserver does when the last lease behind `default/kubernetes` ends.

use harness::{context::Context, names::Key, objects::Written, verdict::Halt};
use serde_json::{Value, json};

/// Writes `endpoints: null` and `ports: null`, and checks that both read back empty.
pub(crate) async fn null_slice(cx: &Context, slice: &Key) -> Result<Written, Halt> {
    // An update, as kube-apiserver's reconciler sends: a merge patch cannot carry a null.
    let fields = json!({ "endpoints": Value::Null, "ports": Value::Null });
    let written = cx.objects().replace_fields(slice, &fields).await?;
    let stored = cx.objects().get(slice).await?;
    for field in ["endpoints", "ports"] {
        let value = &stored[field];
        if !(value.is_null() || value.as_array().is_some_and(Vec::is_empty)) {
            return Err(Halt::Inconclusive(format!(
                "{slice} was written with {field}: null and reads back with {value}: the fault was not made"
            )));
        }
        let form = if stored.get(field).is_none() {
            "absent".to_owned()
        } else {
            value.to_string()
        };
        cx.record(&format!("{field}: null reads back as"), form);
    }
    Ok(written)
}
