//! `stale-sock-legacy-multi`: leftover connect4 and connect6 programs with their old map were attached to the agent's
//! cgroup by `BPF_PROG_ATTACH` with `BPF_F_ALLOW_MULTI`, before the agent's programs. After the agent is ready the VIP
//! serves current backends, and the trap gets none of N probes.
use std::time::Duration;

use cluster::Capability;
use faults::{As, At, Staging};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    target_needs::OfTarget,
};

use super::generations::{CONNECT, CONNECTING, Row, Way, run};

pub(crate) const CASE: Case = Case {
    id: "stale-sock-legacy-multi",
    area: super::AREA,
    claims: &["stale-sock-legacy-multi"],
    sentence: "a leftover program attached before the agent's sends no client to a former backend",
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
            manner: As::Multi,
        }),
    )],
    may_stay_unready: false,
};
