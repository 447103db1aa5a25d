//! `stale-sock-link-orphan`: leftover connect programs are attached by a link without a pin, which a file descriptor
//! keeps. After the agent is ready the VIP serves current backends, and the trap gets nothing.
use std::time::Duration;

use cluster::Capability;
use faults::{As, At, Staging};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    target_needs::OfTarget,
};

use super::generations::{CONNECT, CONNECTING, Row, Way, run};

pub(crate) const CASE: Case = Case {
    id: "stale-sock-link-orphan",
    area: super::AREA,
    claims: &["stale-sock-link-orphan"],
    sentence: "a leftover program that an unpinned link keeps sends no client to a former backend",
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
            at: At::Own,
            manner: As::Link,
        }),
    )],
    may_stay_unready: false,
};
