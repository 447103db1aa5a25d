//! What an implementation has on a node, compared with what it had before.

use faults::Remains;
use oracle::finding::{Finding, Weight};

use crate::{
    context::Context,
    fence,
    verdict::Halt,
    waiting::{Within, eventually},
};

/// Judges by an axis that a node comes to hold no more objects than before: programs, links, maps with their entries, pins,
/// rules, chains, elements and listeners. `after`: what has happened since, such as `500 Services have come and gone`. Before
/// each look another Service changes: some agents remove with the next change what the last one has left.
///
/// # Errors
/// The node can't be looked at.
pub async fn judge(
    cx: &Context,
    axis: &str,
    (node, before): (&str, &Remains),
    within: Within,
    after: &str,
) -> Result<(), Halt> {
    let now = async || Remains::with_contents(cx.cluster(), node).await;
    let same = eventually("the numbers are those of before", within, async || {
        fence::pass(cx).await?;
        Ok((!now().await?.exceeds(before)).then_some(()))
    });
    let same = same.await;
    let left = now().await?;
    cx.record("after", left.to_string());
    let findings = match same {
        Ok(()) => Vec::new(),
        Err(Halt::Inconclusive(_)) => vec![Finding {
            weight: Weight::Violation,
            subject: format!("{node}, {:?} after {after}", within.limit),
            expected: "no more than before".to_owned(),
            found: format!("{} more", left.beyond(before)),
            first: Vec::new(),
            counted: None,
        }],
        Err(halt) => return Err(halt),
    };
    cx.axes().judged(axis, findings);
    Ok(())
}
