//! `stale-sock-udp-sendmsg`: a leftover sendmsg4 or sendmsg6 program translates the VIP to the trap. After the agent's
//! start, unconnected datagrams to the VIP are answered by current backends. The connect hooks have no leftover.
use std::time::Duration;

use cluster::Capability;
use faults::{As, At, Staging};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    target_needs::OfTarget,
};

use super::generations::{Row, SENDING, SENDMSG, Way, run};

pub(crate) const CASE: Case = Case {
    id: "stale-sock-udp-sendmsg",
    area: super::AREA,
    claims: &["stale-sock-udp-sendmsg"],
    sentence: "a leftover sendmsg program sends no datagram to a former backend",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::AgentPins],
        target: &[OfTarget::ProgramsAt(SENDMSG)],
    },
    disruptive: true,
    manifest: include_str!("generations.yaml"),
    longest: Duration::from_secs(480),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx, &ROW)),
};

const ROW: Row = Row {
    hooks: SENDMSG,
    seen: SENDING,
    ways: &[(
        "",
        Way::Attached(Staging {
            at: At::Own,
            manner: As::Multi,
        }),
    )],
    may_stay_unready: false,
};
