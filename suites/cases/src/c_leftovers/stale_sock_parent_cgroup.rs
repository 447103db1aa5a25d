//! `stale-sock-parent-cgroup`: the leftover is attached above the agent's cgroup, where a mount of the agent shows it,
//! and in a second run where none does. It runs last and sees translated addresses: only the VIP of a Service that was
//! deleted meanwhile shows it, which must reach no backend.
use std::time::Duration;

use cluster::Capability;
use faults::{As, At, Staging};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    target_needs::OfTarget,
};

use super::generations::{CONNECT, CONNECTING, Row, Way, run};

pub(crate) const CASE: Case = Case {
    id: "stale-sock-parent-cgroup",
    area: super::AREA,
    claims: &["stale-sock-parent-cgroup"],
    sentence: "a leftover program above the agent's cgroup brings no deleted Service back",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::CgroupAbove, Capability::AgentPins],
        target: &[OfTarget::ProgramsAt(CONNECT)],
    },
    disruptive: true,
    manifest: include_str!("generations.yaml"),
    longest: Duration::from_secs(900),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx, &ROW)),
};

const ROW: Row = Row {
    hooks: CONNECT,
    seen: CONNECTING,
    ways: &[
        (
            "shown",
            Way::Attached(Staging {
                at: At::AboveShown,
                manner: As::Multi,
            }),
        ),
        (
            "not shown",
            Way::Attached(Staging {
                at: At::Above,
                manner: As::Multi,
            }),
        ),
    ],
    may_stay_unready: false,
};
