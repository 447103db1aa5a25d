//! Two programs that do the same work in one chain, on different maps.

use std::path::PathBuf;

use super::{Facts, problem_text::ago};
use crate::report::{Attachment, Certainty, Map, Place, Program, Stale, Whose};

/// Two attachments, by index, whose programs use different maps of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// The one whose program was loaded first; where that is not known, the one that runs first.
    pub(super) older: usize,
    pub(super) younger: usize,
    /// Whether it is known which was loaded first.
    ordered: bool,
    /// Ids of maps of the same name and form: the older's, the younger's. At least one.
    pub(super) maps: Vec<(u32, u32)>,
}

/// Whether what passes one place passes the other, too, at the same hook.
pub(crate) fn related(one: &Place, other: &Place) -> bool {
    match (one, other) {
        (
            Place::Cgroup { id, path, hook, .. },
            Place::Cgroup {
                id: other_id,
                path: other_path,
                hook: other_hook,
                ..
            },
        ) => hook == other_hook && (id == other_id || nested(path.as_ref(), other_path.as_ref())),
        // A packet passes all layers of a device.
        (
            Place::Device {
                index,
                name,
                direction,
                ..
            },
            Place::Device {
                index: other_index,
                name: other_name,
                direction: other_direction,
                ..
            },
        ) => index == other_index && name.is_some() && name == other_name && direction == other_direction,
        (one, other) => one == other,
    }
}

fn nested(one: Option<&PathBuf>, other: Option<&PathBuf>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.starts_with(other) || other.starts_with(one),
        _ => false,
    }
}

/// Every such pair of programs that are not ours, the pairs of one older attachment from the nearest younger one on.
pub(super) fn pairs(facts: &Facts<'_>) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (first, one) in facts.attachments.iter().enumerate() {
        for (second, other) in facts.attachments.iter().enumerate().skip(first + 1) {
            pairs.extend(pair(facts, (first, one), (second, other)));
        }
    }
    pairs.sort_by_key(|pair| {
        let loaded_at = |index: usize| {
            let attachment = facts.attachments.get(index)?;
            facts.programs.get(&attachment.program)?.loaded_at
        };
        (pair.older, loaded_at(pair.younger))
    });
    pairs
}

fn pair(
    facts: &Facts<'_>,
    (first, one): (usize, &Attachment),
    (second, other): (usize, &Attachment),
) -> Option<Pair> {
    if one.program == other.program || !related(&one.place, &other.place) {
        return None;
    }
    let (program, others) = (
        facts.programs.get(&one.program)?,
        facts.programs.get(&other.program)?,
    );
    if !same_work(program, others) {
        return None;
    }
    let maps = differing(facts, program, others);
    if maps.is_empty() {
        return None;
    }
    let (loaded, others_loaded) = (program.loaded_at, others.loaded_at);
    let ordered = loaded.is_some() && others_loaded.is_some() && loaded != others_loaded;
    Some(if ordered && loaded > others_loaded {
        Pair {
            older: second,
            younger: first,
            ordered,
            maps: maps.into_iter().map(|(one, other)| (other, one)).collect(),
        }
    } else {
        Pair {
            older: first,
            younger: second,
            ordered,
            maps,
        }
    })
}

/// Whether two programs at one hook are two loads of the same, as far as names tell.
fn same_work(one: &Program, other: &Program) -> bool {
    match (one.owner.whose, other.owner.whose) {
        (Whose::Plumbline, _) | (_, Whose::Plumbline) => false,
        (Whose::Unknown, Whose::Unknown) => !one.name.is_empty() && one.name == other.name,
        (one, other) => one == other,
    }
}

/// Maps of the same name and form that are not the same. Sections of an object (`.rodata`, `prog.bss`), of which each
/// load has its own, say nothing.
fn differing(facts: &Facts<'_>, one: &Program, other: &Program) -> Vec<(u32, u32)> {
    let form = |map: &Map| (map.name.clone(), map.kind.clone(), map.key_size, map.value_size);
    let maps = |program: &Program, without: &Program| -> Vec<Map> {
        let own = program.maps.iter().filter(|id| !without.maps.contains(id));
        own.filter_map(|id| facts.maps.get(id))
            .filter(|map| !map.name.is_empty() && !map.name.contains('.'))
            .cloned()
            .collect()
    };
    let others = maps(other, one);
    maps(one, other)
        .iter()
        .filter_map(|map| {
            let twin = others.iter().find(|candidate| form(candidate) == form(map))?;
            Some((map.id, twin.id))
        })
        .collect()
}

impl Pair {
    /// Why the older one is stale. `None`: that can't be told.
    pub(super) fn verdict(&self, facts: &Facts<'_>) -> Option<Stale> {
        let program = |index: usize| {
            let attachment = facts.attachments.get(index)?;
            facts.programs.get(&attachment.program)
        };
        let (older, younger) = (program(self.older)?, program(self.younger)?);
        let pinned = |id: &u32| facts.maps.get(id).is_some_and(|map| !map.pinned_at.is_empty());
        let olders_pinned = self.maps.iter().any(|(older, _)| pinned(older));
        let youngers_pinned = self.maps.iter().any(|(_, younger)| pinned(younger));
        if !self.ordered || (olders_pinned && !youngers_pinned) {
            return None;
        }
        let loaded = |program: &Program| {
            program
                .loaded_seconds_ago
                .map_or_else(|| "some time ago".to_owned(), ago)
        };
        let mut reasons = vec![format!(
            "program {} at the same hook was loaded after it: {}, this one {}",
            younger.id,
            loaded(younger),
            loaded(older)
        )];
        for (older_map, younger_map) in self.maps.iter().take(4) {
            let name = facts.maps.get(older_map).map_or("", |map| map.name.as_str());
            reasons.push(format!(
                "it reads map {older_map} where program {} reads map {younger_map} of the same name, {name}",
                younger.id
            ));
        }
        reasons.push(
            match (youngers_pinned, olders_pinned) {
                (true, false) => "the younger program's maps are pinned, this one's are not",
                (true, true) => "the younger program's maps are pinned, as are this one's",
                (false, _) => {
                    "this program's maps are not pinned: nothing can write to them by path any more"
                }
            }
            .to_owned(),
        );
        Some(Stale {
            certainty: Certainty::Suspected,
            newer: Some(younger.id),
            reasons,
        })
    }
}
