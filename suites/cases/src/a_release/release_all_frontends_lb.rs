//! `release-all-frontends`, extended part: after release and trigger, the load balancer's address of V from ps, pr, h and
//! x, and its ClusterIP, serve {b}.
//!
//! The address is the one that the cluster's load balancer controller gives (`ipMode: VIP`, which is the default).
use std::time::Duration;

use cluster::Capability;
use harness::case::{Case, Families, Needs, Rights, Tier};

use super::frontends::{External, all_frontends};

pub(crate) const CASE: Case = Case {
    id: "release-all-frontends-lb",
    area: "A release isolation",
    claims: &["release-all-frontends"],
    sentence: "a load balancer's address keeps its backends when a Service whose name is a prefix is emptied",
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
