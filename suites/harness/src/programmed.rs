//! What agents have programmed, compared with what the API lists by the target's own command.

use oracle::finding::{Finding, Weight};

use crate::{
    context::Context,
    verdict::Halt,
    waiting::{Within, eventually},
};

/// Lines of differences that a finding shows.
const SHOWN: usize = 6;

/// Judges by an axis that what the agent of a node has programmed comes to be what the API lists, while nothing changes.
/// Nothing is judged of a target without a command that compares.
///
/// # Errors
/// The command fails.
pub async fn judge(cx: &Context, axis: &str, node: &str, within: Within) -> Result<(), Halt> {
    let agents = cx.cluster().agents()?;
    let same = eventually("it agrees with the API", within, async || {
        let agrees = agents.differences(node).await?.as_deref().map(str::is_empty);
        // Without such a command, there is nothing to wait for.
        Ok((agrees != Some(false)).then_some(agrees.is_some()))
    });
    let findings = match same.await {
        Ok(false) => return Ok(()),
        Ok(true) => Vec::new(),
        Err(Halt::Inconclusive(_)) => {
            let last = agents.differences(node).await?.unwrap_or_default();
            Vec::from_iter((!last.is_empty()).then(|| finding(node, within, &last)))
        }
        Err(halt) => return Err(halt),
    };
    cx.axes().judged(axis, findings);
    Ok(())
}

fn finding(node: &str, within: Within, differences: &str) -> Finding {
    let lines = differences.lines().count();
    let shown: Vec<&str> = differences.lines().take(SHOWN).collect();
    let more = lines.saturating_sub(SHOWN);
    Finding {
        weight: Weight::Violation,
        subject: format!(
            "what the agent of {node} has programmed, {:?} after the last change",
            within.limit
        ),
        expected: "what the API lists".to_owned(),
        found: format!("{}; {more} more lines", shown.join("; ")),
        first: Vec::new(),
        counted: None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_finding_shows_the_first_differences_and_counts_the_others() {
        let text: String = (0..SHOWN + 5).map(|line| format!("- {line}\n")).collect();
        let found = finding("node1", Within::from_now(Duration::from_secs(9)), &text).found;
        assert_eq!(found, "- 0; - 1; - 2; - 3; - 4; - 5; 5 more lines");
    }
}
