//! `stale-no-reboot`: for each row above it recovery needs at most one start of the agent: the kernel's boot id is the same, the
//! node is not cordoned, the suite detaches nothing before the verdict, and connections that were healthy before the start
//! survive it. One from outside has its state in maps of packet programs: where a case takes away what leads to these, whether
//! it survives is recorded, not judged.
//!
//! No case of its own: each case of the rows above watches its recoveries ([`harness::recovery`]), and this row is judged over
//! all of them. An agent that stays unready until the leftover is detached by hand passes `stale-sock-exclusive-attach`,
//! which permits that, and fails this row.
use harness::case::Tier;

use crate::claims::joint::Joint;

pub(crate) const ROW: Joint = Joint {
    id: "stale-no-reboot",
    area: "C leftover programs and maps",
    sentence: "no leftover needs a reboot, a drained node or manual work: at most one start of the agent",
    tier: Tier::Robustness,
};
