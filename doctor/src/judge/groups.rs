//! Stale attachments of one load, together: a load has a program at each hook, and they share maps.

use std::collections::BTreeSet;

use super::Facts;
use crate::report::{Certainty, Whose};

/// Attachments of one load of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) whose: Whose,
    /// The least that is known of any of them.
    pub(super) certainty: Certainty,
    /// By index, in the order of the report. At least one.
    pub(super) attachments: Vec<usize>,
    maps: BTreeSet<u32>,
}

/// The stale attachments, by load.
pub(super) fn group(facts: &Facts<'_>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, attachment) in facts.attachments.iter().enumerate() {
        let (Some(stale), Some(program)) = (&attachment.stale, facts.programs.get(&attachment.program))
        else {
            continue;
        };
        let mut new = Group {
            whose: program.owner.whose,
            certainty: stale.certainty,
            attachments: vec![index],
            maps: own_maps(facts, &program.maps, stale.newer),
        };
        // What it shares maps with becomes one with it: two groups may become one by it.
        groups.retain(|group| {
            let same = group.whose == new.whose
                && group.certainty == new.certainty
                && (!group.maps.is_disjoint(&new.maps) || same_program(facts, group, index));
            if same {
                new.attachments.extend(&group.attachments);
                new.maps.extend(&group.maps);
            }
            !same
        });
        new.attachments.sort_unstable();
        groups.push(new);
    }
    groups.sort_by_key(|group| group.attachments.clone());
    groups
}

/// The maps that the program does not share with the one that has taken its place.
fn own_maps(facts: &Facts<'_>, maps: &[u32], newer: Option<u32>) -> BTreeSet<u32> {
    let shared = newer.and_then(|id| facts.programs.get(&id));
    let shared = shared.map_or(&[][..], |program| program.maps.as_slice());
    maps.iter().filter(|id| !shared.contains(id)).copied().collect()
}

fn same_program(facts: &Facts<'_>, group: &Group, index: usize) -> bool {
    let program = |index: usize| facts.attachments.get(index).map(|attachment| attachment.program);
    group
        .attachments
        .iter()
        .any(|one| program(*one) == program(index))
}
