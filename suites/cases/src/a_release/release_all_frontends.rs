//! `release-all-frontends`, core part: after release and trigger, the ClusterIP of V from ps, pr and h, and its node port
//! on every node from ps, pr, h and x, all serve {b}.
//!
//! The load balancer's part of the row is `release-all-frontends-lb`.
use std::time::Duration;

use harness::case::{Case, Families, Needs, Rights, Tier};

use super::frontends::{External, all_frontends};

pub(crate) const CASE: Case = Case {
    id: "release-all-frontends",
    area: "A release isolation",
    claims: &["release-all-frontends"],
    sentence: "ClusterIP and node ports keep their backends when a Service whose name is a prefix is emptied",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("release_all_frontends.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(all_frontends(cx, External::NodePort)),
};
