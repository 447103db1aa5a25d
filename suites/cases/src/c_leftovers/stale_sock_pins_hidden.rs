//! `stale-sock-pins-hidden`: a new bpffs is mounted over the old one before the restart, so that the agent finds no
//! pins; what they pin stays attached.
use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    target_needs::OfTarget,
};

use super::generations::{CONNECT, CONNECTING, Row, Way, run};

pub(crate) const CASE: Case = Case {
    id: "stale-sock-pins-hidden",
    area: super::AREA,
    claims: &["stale-sock-pins-hidden"],
    sentence: "programs whose pins the agent cannot see send no client to a former backend",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[],
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
    ways: &[("", Way::PinsHidden)],
    may_stay_unready: false,
};
