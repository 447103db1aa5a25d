//! `release-all-frontends`, core part: after release and trigger, the victim's ClusterIP serves its backends from pods
//! and hosts, and its node port does on every node, from pods, hosts and outside.
//!
//! `release-all-frontends-lb` decides the load balancer part of the claim.
use std::time::Duration;

use harness::case::{Case, Families, Needs, Rights, Tier};

use super::frontends::{External, all_frontends};

pub(crate) const CASE: Case = Case {
    id: "release-all-frontends",
    area: super::AREA,
    claims: &["release-all-frontends"],
    sentence: "ClusterIP and node ports keep their backends when a Service whose name is a prefix of their own is emptied",
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
