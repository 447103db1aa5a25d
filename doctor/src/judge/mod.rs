//! Which attachments are stale, how sure that is, and what follows: pure.
//!
//! **Ours.** The loader knows current programs by what is pinned. Another one of ours is stale: *certainly*, if a
//! current one is at the same hook of the same chain (the same place, a cgroup above or below it, the same device), or
//! if its cgroup was removed; *suspected* otherwise, unless a process holds its link: then it may be another agent's,
//! whose bpffs was not looked at.
//!
//! **Others'.** Suspected, never certain: a program is stale if a younger one of the same owner (or, of unknown owners,
//! of the same name) is at the same hook of the same chain, both use maps of one name and form that are not the same
//! maps, and the younger one's are pinned or the older one's are not. If the pins say nothing or the contrary, that is
//! a problem of two generations, and neither is called stale.
//!
//! | file | what |
//! |---|---|
//! | `pairs` | programs that do the same work in one chain, and the maps in which they differ |
//! | `groups` | stale attachments of one load, together |
//! | `compare` | services that two generations of maps see differently |
//! | `problem_text` | stale attachments in words |
//! | `ambiguous` | the rest in words |

mod ambiguous;
mod compare;
mod groups;
mod pairs;
mod problem_text;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use self::problem_text::ago;
pub(super) use self::{compare::agree, pairs::related};
use self::{groups::group, pairs::Pair};
use super::{
    map_bytes::MapBytes,
    report::{Attachment, Certainty, CgroupState, Manner, Map, Place, Problem, Program, Stale, Standing},
};

/// What there is to judge.
pub(super) struct Facts<'a> {
    pub(super) attachments: &'a mut Vec<Attachment>,
    pub(super) programs: &'a BTreeMap<u32, Program>,
    pub(super) maps: &'a BTreeMap<u32, Map>,
}

/// Marks what is stale, and says what is wrong.
pub(super) fn judge(mut facts: Facts<'_>, bytes: &dyn MapBytes) -> Vec<Problem> {
    mark_ours(&mut facts);
    let pairs = mark_others(&mut facts);
    let mut problems: Vec<Problem> = group(&facts)
        .iter()
        .map(|group| problem_text::stale(&facts, group, bytes))
        .collect();
    problems.extend(ambiguous::undecided(&facts, &pairs, bytes));
    problems.sort_by_key(|problem| (problem.certainty, problem.kind));
    problems
}

fn mark_ours(facts: &mut Facts<'_>) {
    let mut marks = Vec::new();
    for (index, attachment) in facts.attachments.iter().enumerate() {
        if attachment.standing != Standing::Earlier {
            continue;
        }
        let newer = facts.attachments.iter().find(|candidate| {
            candidate.standing == Standing::Current && related(&attachment.place, &candidate.place)
        });
        let newer = newer.map(|candidate| candidate.program);
        marks.push((index, ours(attachment, newer)));
    }
    for (index, stale) in marks {
        if let Some(attachment) = facts.attachments.get_mut(index) {
            attachment.stale = stale;
        }
    }
}

/// Whether a program of ours that nothing pinned names is stale.
fn ours(attachment: &Attachment, newer: Option<u32>) -> Option<Stale> {
    let mut reasons = vec![
        "it is Plumbline's, and neither its link nor its maps are those that the agent has pinned".to_owned(),
    ];
    let removed = matches!(
        attachment.place,
        Place::Cgroup {
            state: CgroupState::Dying,
            ..
        }
    );
    let certainty = match newer {
        Some(newer) => {
            reasons.push(format!("program {newer} is the agent's at this hook"));
            Certainty::Certain
        }
        None if removed => {
            reasons.push("its cgroup was removed: no agent serves it any more".to_owned());
            Certainty::Certain
        }
        None if held(&attachment.manner) => return None,
        None => {
            reasons.push("no process holds its link".to_owned());
            Certainty::Suspected
        }
    };
    Some(Stale {
        certainty,
        newer,
        reasons,
    })
}

/// Whether a process or pin that can be seen keeps an attachment.
fn held(manner: &Manner) -> bool {
    match manner {
        Manner::Link {
            pinned_at, held_by, ..
        } => !pinned_at.is_empty() || !held_by.is_empty(),
        Manner::Legacy { .. } | Manner::Filter { .. } | Manner::Xdp { .. } => false,
    }
}

/// Marks others' stale programs; the pairs of which that can't be told are given back.
fn mark_others(facts: &mut Facts<'_>) -> Vec<Pair> {
    let pairs = pairs::pairs(facts);
    let mut undecided = Vec::new();
    for pair in pairs {
        match pair.verdict(facts) {
            Some(stale) => {
                if let Some(attachment) = facts.attachments.get_mut(pair.older) {
                    // The first pair has the nearest younger program.
                    attachment.stale.get_or_insert(stale);
                }
            }
            None => undecided.push(pair),
        }
    }
    // What another pair has decided is decided.
    let stale = |index: usize| {
        let attachment = facts.attachments.get(index);
        attachment.is_some_and(|attachment| attachment.stale.is_some())
    };
    undecided.retain(|pair| !stale(pair.older) && !stale(pair.younger));
    undecided
}
