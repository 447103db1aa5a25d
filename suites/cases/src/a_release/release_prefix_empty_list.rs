//! `release-prefix-empty-list`: C=`t`, V=`t-ext`, one namespace. C's slice is patched to `endpoints: []`; then an
//! annotation on Service V is patched. V serves {b}, 0 failures of N from every node, for T_hold after the patch.
//!
//! A run that stops before the patch passes on the broken version: the release is latent until V is reconciled.

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
    area: "A release isolation",
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
