//! `release-prefix-null-slice`: as `release-prefix-empty-list`, but C's slice becomes `endpoints: null` and
//! `ports: null`, the form kube-apiserver writes when the last lease behind `default/kubernetes` goes. V serves {b}
//! after the annotation patch.
//!
//! The stored object is read back: a client library may drop or re-default the fields.

use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    objects::{Key, Written},
    verdict::Halt,
};
use serde_json::{Value, json};

use super::staging::prefix_release;

pub(crate) const CASE: Case = Case {
    id: "release-prefix-null-slice",
    area: "A release isolation",
    claims: &["release-prefix-null-slice"],
    sentence: "a Service keeps its backends when one whose name is a prefix of its own gets a slice of nulls",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
    },
    disruptive: false,
    manifest: include_str!("release_prefix_null_slice.yaml"),
    longest: Duration::from_secs(420),
    run: |cx| Box::pin(run(cx)),
};

async fn run(cx: &Context) -> Result<(), Halt> {
    prefix_release(cx, null_slice).await
}

async fn null_slice(cx: &Context, slice: &Key) -> Result<Written, Halt> {
    // An update, as kube-apiserver's reconciler makes: a merge patch can't carry a null.
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
