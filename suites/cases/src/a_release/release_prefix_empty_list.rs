//! `release-prefix-empty-list`: Services `t` (the culprit) and `t-ext` (the victim) are in one namespace. The culprit's
//! EndpointSlice is patched to `endpoints: []`, and then an annotation of the victim is patched. The victim serves its
//! backends, without a failed probe from any node, for the hold time.
//!
//! A run that stops before that annotation passes on the broken version: the loss shows only when the victim is
//! reconciled.

use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    verdict::Halt,
};
use serde_json::json;

use super::staging::prefix_release;

pub(crate) const CASE: Case = Case {
    id: "release-prefix-empty-list",
    area: super::AREA,
    claims: &["release-prefix-empty-list"],
    sentence: "a Service keeps its backends when one whose name is a prefix of its own is emptied (endpoints: [])",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("release_prefix_empty_list.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

async fn run(cx: &Context) -> Result<(), Halt> {
    prefix_release(cx, async |cx, slice| {
        cx.objects().patch(slice, json!({ "endpoints": [] })).await
    })
    .await
}
