//! `release-all-frontends`, extended part: after release and trigger, the victim's load balancer address serves its
//! backends from pods, hosts and outside, and so does its ClusterIP.
//!
//! The cluster's load balancer controller assigns the address (with `ipMode: VIP`, the default).
use std::time::Duration;

use cluster::Capability;
use harness::case::{Case, Families, Needs, Rights, Tier};

use super::frontends::{External, all_frontends};

pub(crate) const CASE: Case = Case {
    id: "release-all-frontends-lb",
    area: super::AREA,
    claims: &["release-all-frontends"],
    sentence: "a load balancer address keeps its backends when a Service whose name is a prefix of its own is emptied",
    tier: Tier::Core,
    features: &["loadbalancer"],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::LoadBalancerAddresses],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("release_all_frontends_lb.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(all_frontends(cx, External::LoadBalancer)),
};
