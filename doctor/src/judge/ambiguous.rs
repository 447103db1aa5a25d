//! Two generations of which it can't be said which is the current one, in words.

use super::{Facts, pairs::Pair, problem_text::comparison};
use crate::{
    map_bytes::MapBytes,
    report::{Attachment, Certainty, Problem, ProblemKind, Program},
};

/// Programs of one owner on different maps, of which it can't be said which are current.
pub(super) fn undecided(facts: &Facts<'_>, pairs: &[Pair], bytes: &dyn MapBytes) -> Option<Problem> {
    let told: Vec<(&Attachment, &Program, &Attachment, &Program)> = pairs
        .iter()
        .filter_map(|pair| {
            let at = |index: usize| {
                let attachment = facts.attachments.get(index)?;
                Some((attachment, facts.programs.get(&attachment.program)?))
            };
            let ((older_at, older), (younger_at, younger)) = (at(pair.older)?, at(pair.younger)?);
            Some((older_at, older, younger_at, younger))
        })
        .collect();
    let (older_at, older, _, younger) = *told.first()?;
    let maps = pairs.first().and_then(|pair| pair.maps.first())?;
    let comparison = comparison(facts, older, younger, &older_at.place, bytes).unwrap_or_default();
    let mut programs: Vec<u32> = told
        .iter()
        .flat_map(|(_, one, _, other)| [one.id, other.id])
        .collect();
    programs.sort_unstable();
    programs.dedup();
    let differ = match comparison.in_all {
        0 => String::new(),
        count => format!(" {count} of {} services differ.", comparison.compared),
    };
    Some(Problem {
        kind: ProblemKind::TwoGenerations,
        certainty: Certainty::Suspected,
        summary: format!("programs of {} read different maps of the same name", older.owner.whose),
        story: format!(
            "At {}, {} reads map {}, and {} reads map {} of the same name.{differ} Which of them is the current one can't \
             be told: neither the times at which they were loaded nor pins decide it.",
            older_at.place,
            older.title(),
            maps.0,
            younger.title(),
            maps.1
        ),
        remedy: "find out which of them the running agent uses (its open maps are in /proc/PID/fdinfo), and end the \
                 other with `plumbline doctor --fix --evict PROGRAM`"
            .to_owned(),
        programs,
        against: Vec::new(),
        misled: comparison.misled,
        misled_in_all: comparison.in_all,
    })
}
