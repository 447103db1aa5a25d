//! What a row leans on: a write of its own that must have come into force before its claim can be asked.
//!
//! When the suite's own watch holds the write and the fence has passed, the target has met it. What it then serves outside the
//! permitted set is no missing witness but a failure, of the claim whose sentence it breaks, in whatever row it is seen (rule 6 of
//! the catalogue). It is reported as an axis of its own, and the row goes on: its own claim is judged all the same.

use oracle::{
    check::Permitted,
    finding::{Finding, Weight},
};

use crate::{
    axes::first_line,
    client::Client,
    context::Context,
    destination::Destination,
    frontends::Vantage,
    probing::{Settled, any_open, group, settle_all},
    time_spent::Activity,
    verdict::Halt,
    waiting::Within,
};

/// A write, by what it must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// All endpoints of a Service have left, or are not ready.
    Emptied,
    /// Some of its endpoints have left; the others serve.
    Left,
    /// Its endpoints are others, or more.
    Listed,
    /// Its endpoints have moved to another slice.
    Moved,
    /// It was deleted.
    Deleted,
    /// Its ports, addresses or type are others.
    Changed,
    /// A Service whose name is a prefix of its own was emptied: its own backends stay.
    Kept,
    /// It has session affinity: each client is bound to one backend.
    Bound,
}

impl Effect {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Emptied,
        Self::Left,
        Self::Listed,
        Self::Moved,
        Self::Deleted,
        Self::Changed,
        Self::Kept,
        Self::Bound,
    ];

    /// The claim that says so.
    #[must_use]
    pub fn claim(self) -> &'static str {
        match self {
            Self::Emptied => "slice-empty-drops-to-zero",
            Self::Left => "unready-no-new",
            Self::Listed => "slice-union",
            Self::Moved => "slice-duplicate-and-move",
            Self::Deleted => "service-deleted-vip-dead",
            Self::Changed => "service-change-live",
            Self::Kept => "release-prefix-empty-list",
            Self::Bound => "affinity-sticks",
        }
    }

    /// A target as the claim has it: NONE is all that it asks for where a row says REFUSE, which is a claim of its own.
    fn permits(self, target: &Destination) -> Destination {
        let mut target = target.clone();
        if matches!(self, Self::Emptied | Self::Deleted) && target.permitted == Permitted::Refuse {
            target.permitted = Permitted::None;
        }
        target
    }
}

/// Returns when the targets of every client are what a write must come to, or the limit has passed. A fence has passed before,
/// or the limit begins with the write. An axis where it is not so fails, beside itself, by the claim of the effect; it
/// goes on. Of an axis that can't be decided, it is inconclusive.
///
/// # Errors
/// If no axis is left.
pub async fn takes_effect(
    cx: &Context,
    effect: Effect,
    what: &str,
    clients: &[Client],
    targets: &[Destination],
    within: Within,
) -> Result<(), Halt> {
    takes_effect_for_all(cx, effect, what, &group(clients, targets), within).await
}

/// As [`takes_effect`], of groups of clients at once, each with its targets.
pub(crate) async fn takes_effect_for_all(
    cx: &Context,
    effect: Effect,
    what: &str,
    groups: &[Vantage],
    within: Within,
) -> Result<(), Halt> {
    let _spent = cx.clock().during(Activity::Control);
    let permitted = |(clients, targets): &Vantage| {
        let targets = targets.iter().map(|target| effect.permits(target));
        (clients.clone(), targets.collect())
    };
    let groups: Vec<Vantage> = groups.iter().map(permitted).collect();
    let settled = settle_all(cx, &groups, within).await?;
    if let Some(took) = settled.took() {
        cx.record_delay(what, took, settled.limit());
    }
    must_hold(cx, effect, what, settled);
    any_open(cx, groups.iter().flat_map(|(_, targets)| targets))
}

/// What a row leans on is broken, in one of its axes: what a write must come to, what was to be seen of it, and what was found.
pub fn breaks(cx: &Context, axis: &str, effect: Effect, what: &str, findings: Vec<Finding>) {
    cx.axes().breaks(axis, effect.claim(), what, findings);
}

/// The verdict of [`takes_effect`], of what has been settled.
pub fn must_hold(cx: &Context, effect: Effect, what: &str, settled: Settled) {
    let limit = settled.limit();
    for (axis, findings) in settled.into_open() {
        let worst = findings.iter().min_by_key(|finding| finding.weight);
        let Some(worst) = worst else { continue };
        match worst.weight {
            Weight::Violation => breaks(cx, &axis, effect, what, findings),
            Weight::Undecided => {
                let why = format!("not seen ({what}) within {limit:?}: {}", first_line(worst));
                cx.axes().inconclusive(&axis, why, findings);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use oracle::history::Transport;

    use super::*;

    #[test]
    fn a_service_without_endpoints_may_be_silent_where_that_is_not_what_the_row_is_about() {
        let refuses = Destination::refuses("a", "t", Transport::Tcp, "10.0.0.1:80".parse().unwrap());
        assert_eq!(Effect::Emptied.permits(&refuses).permitted, Permitted::None);
        assert_eq!(Effect::Deleted.permits(&refuses).permitted, Permitted::None);
        let serves = Destination::serves("a", "t", Transport::Tcp, refuses.address, ["b".to_owned()]);
        assert_eq!(Effect::Emptied.permits(&serves).permitted, serves.permitted);
    }
}
