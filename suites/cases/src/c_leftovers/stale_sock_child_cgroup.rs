//! `stale-sock-child-cgroup`: the leftover is attached to a cgroup below the agent's. Clients inside and outside of it
//! are served by current backends.
use std::time::Duration;

use cluster::Capability;
use faults::{As, At, Staging};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    target_needs::OfTarget,
};

use super::generations::{CONNECT, CONNECTING, Row, Way, run};

pub(crate) const CASE: Case = Case {
    id: "stale-sock-child-cgroup",
    area: super::AREA,
    claims: &["stale-sock-child-cgroup"],
    sentence: "a leftover program below the agent's cgroup sends no client to a former backend",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::AgentPins],
        target: &[OfTarget::ProgramsAt(CONNECT)],
    },
    disruptive: true,
    manifest: include_str!("generations.yaml"),
    longest: Duration::from_secs(480),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx, &ROW)),
};

const ROW: Row = Row {
    hooks: CONNECT,
    seen: CONNECTING,
    ways: &[(
        "",
        Way::Attached(Staging {
            at: At::Below,
            manner: As::Multi,
        }),
    )],
    may_stay_unready: false,
};
