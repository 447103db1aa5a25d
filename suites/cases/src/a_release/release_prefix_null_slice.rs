//! `release-prefix-null-slice`: like `release-prefix-empty-list`, but the culprit's EndpointSlice becomes `endpoints:
//! null` and `ports: null`, as kube-apiserver writes when the last lease behind `default/kubernetes` ends.
//!
//! The stored object is read back: a client library may drop the fields or fill in defaults.

use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    verdict::Halt,
};

use super::staging::prefix_release;
use crate::null_slice::null_slice;

pub(crate) const CASE: Case = Case {
    id: "release-prefix-null-slice",
    area: super::AREA,
    claims: &["release-prefix-null-slice"],
    sentence: "a Service keeps its backends when one whose name is a prefix of its own gets null endpoints and ports",
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
    manifest: include_str!("release_prefix_null_slice.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

async fn run(cx: &Context) -> Result<(), Halt> {
    prefix_release(cx, null_slice).await
}
