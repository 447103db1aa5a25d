//! `stale-sock-exclusive-attach`: the leftover was attached without a flag, or with `BPF_F_ALLOW_OVERRIDE`. Either the
//! VIP serves current backends within the recovery limit, or the agent stays unready; an agent that is ready while the
//! trap is reached fails. At the agent's own cgroup, and right above it (`stale-sock-exclusive-above`). Where the
//! kernel refuses to attach it so, that is the witness.
use std::time::Duration;

use cluster::Capability;
use faults::{As, At, Staging};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    target_needs::OfTarget,
};

use super::generations::{CONNECT, CONNECTING, Row, Way, run};

pub(crate) const CASE: Case = Case {
    id: "stale-sock-exclusive-attach",
    area: super::AREA,
    claims: &["stale-sock-exclusive-attach"],
    sentence: "where a leftover program allows no other, the agent serves or reports that it is not ready",
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
    longest: Duration::from_secs(900),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx, &OWN)),
};

pub(crate) const ABOVE: Case = Case {
    id: "stale-sock-exclusive-above",
    sentence: "where a leftover program above allows no other, the agent serves or reports that it is not ready",
    needs: Needs {
        also: &[Capability::AgentPins, Capability::CgroupAbove],
        ..CASE.needs
    },
    run: |cx| Box::pin(run(cx, &RIGHT_ABOVE)),
    ..CASE
};

const OWN: Row = Row {
    hooks: CONNECT,
    seen: CONNECTING,
    ways: &[
        (
            "no flag",
            Way::Attached(Staging {
                at: At::Own,
                manner: As::Exclusive,
            }),
        ),
        (
            "override",
            Way::Attached(Staging {
                at: At::Own,
                manner: As::Override,
            }),
        ),
    ],
    may_stay_unready: true,
};

const RIGHT_ABOVE: Row = Row {
    ways: &[
        (
            "no flag, above",
            Way::Attached(Staging {
                at: At::Above,
                manner: As::Exclusive,
            }),
        ),
        (
            "override, above",
            Way::Attached(Staging {
                at: At::Above,
                manner: As::Override,
            }),
        ),
    ],
    ..OWN
};
