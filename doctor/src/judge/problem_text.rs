//! What is wrong, in words.

use std::fmt::Write as _;

use super::{
    Facts,
    compare::{Comparison, compare},
    groups::Group,
};
use crate::{
    checks::some_of,
    layout::Tables,
    map_bytes::MapBytes,
    report::{Attachment, Certainty, Manner, Map, Misled, Place, Problem, ProblemKind, Program, Whose},
};

/// How long ago, as people say it: `6 days ago`.
pub fn ago(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
    let unit = UNITS.into_iter().find(|(size, _)| seconds >= *size);
    unit.map_or_else(
        || "just now".to_owned(),
        |(size, name)| {
            let count = seconds / size;
            let plural = if count == 1 { "" } else { "s" };
            format!("{count} {name}{plural} ago")
        },
    )
}

/// Hooks at which a story is best told: where destinations are rewritten.
const TELLING: [&str; 4] = ["connect4", "connect6", "sendmsg4", "sendmsg6"];

/// What one stale program does, at one hook.
struct Scene<'a> {
    attachment: &'a Attachment,
    program: &'a Program,
    /// The one that has taken its place, and where that is in the chain.
    newer: Option<(&'a Attachment, &'a Program)>,
    comparison: Comparison,
    /// A pair of maps of the same name.
    maps: Option<(&'a Map, &'a Map)>,
}

/// The problem that a load's stale attachments are.
pub(super) fn stale(facts: &Facts<'_>, group: &Group, bytes: &dyn MapBytes) -> Problem {
    let scenes: Vec<Scene<'_>> = group
        .attachments
        .iter()
        .filter_map(|index| scene(facts, *index, bytes))
        .collect();
    let mut programs: Vec<u32> = scenes.iter().map(|scene| scene.program.id).collect();
    let mut against: Vec<u32> = scenes
        .iter()
        .filter_map(|scene| scene.newer.map(|(_, program)| program.id))
        .collect();
    for ids in [&mut programs, &mut against] {
        ids.sort_unstable();
        ids.dedup();
    }
    // Where most is misled; of equal ones where destinations are rewritten.
    let lead = scenes.iter().min_by_key(|scene| {
        let hook = scene.attachment.place.hook();
        let telling = TELLING
            .iter()
            .position(|known| *known == hook)
            .unwrap_or(TELLING.len());
        (std::cmp::Reverse(scene.comparison.in_all), telling)
    });
    let suspected = match group.certainty {
        Certainty::Certain => "",
        Certainty::Suspected => " is suspected to be stale: it",
    };
    let count = programs.len();
    let plural = if count == 1 { "" } else { "s" };
    let summary = match group.certainty {
        Certainty::Certain => format!(
            "{count} stale program{plural} of {} still attached at {} place{}",
            group.whose,
            scenes.len(),
            if scenes.len() == 1 { "" } else { "s" }
        ),
        Certainty::Suspected => format!(
            "{count} program{plural} of {} (a guess), attached at {} place{}, suspected to be stale",
            group.whose,
            scenes.len(),
            if scenes.len() == 1 { "" } else { "s" }
        ),
    };
    let mut story = lead.map(|lead| tell(lead, suspected)).unwrap_or_default();
    if scenes.len() > 1 {
        let others: Vec<String> = scenes
            .iter()
            .filter(|scene| lead.is_none_or(|lead| scene.attachment != lead.attachment))
            .map(|scene| format!("{} at {}", scene.program.id, scene.attachment.place))
            .collect();
        let _ = write!(
            story,
            " The same load is attached elsewhere too: {}.",
            some_of(&others, ", ")
        );
    }
    let (misled, misled_in_all) = lead.map_or((Vec::new(), 0), |lead| {
        (lead.comparison.misled.clone(), lead.comparison.in_all)
    });
    Problem {
        kind: ProblemKind::StalePrograms,
        certainty: group.certainty,
        summary,
        story,
        remedy: remedy(group.certainty, group.whose),
        programs,
        against,
        misled,
        misled_in_all,
    }
}

fn remedy(certainty: Certainty, whose: Whose) -> String {
    let how = match certainty {
        Certainty::Certain => "plumbline doctor --fix",
        Certainty::Suspected => "plumbline doctor --fix --suspected",
    };
    let agent = match whose {
        Whose::Plumbline | Whose::Unknown => "its agent".to_owned(),
        whose => format!("{whose}'s agent"),
    };
    format!(
        "`{how}` shows what it would detach, asks, and detaches it; no reboot is needed. New connections go right at once, \
         established ones stay where they are. Restarting {agent} does not help: it does not know of what an earlier \
         start has left."
    )
}

fn scene<'a>(facts: &'a Facts<'_>, index: usize, bytes: &dyn MapBytes) -> Option<Scene<'a>> {
    let attachment = facts.attachments.get(index)?;
    let program = facts.programs.get(&attachment.program)?;
    let newer_id = attachment.stale.as_ref()?.newer;
    let newer = newer_id.and_then(|id| {
        let at = facts
            .attachments
            .iter()
            .find(|other| other.program == id && super::related(&attachment.place, &other.place))?;
        Some((at, facts.programs.get(&id)?))
    });
    let comparison = newer
        .and_then(|(_, newer)| comparison(facts, program, newer, &attachment.place, bytes))
        .unwrap_or_default();
    let maps = newer.and_then(|(_, newer)| twins(facts, program, newer));
    Some(Scene {
        attachment,
        program,
        newer,
        comparison,
        maps,
    })
}

fn tables(facts: &Facts<'_>, program: &Program, bytes: &dyn MapBytes) -> Option<Tables> {
    let maps: Vec<&Map> = program.maps.iter().filter_map(|id| facts.maps.get(id)).collect();
    Tables::recognise(bytes, &program.owner, &maps).ok().flatten()
}

/// `None`: one of the layouts is not known, or a map can't be read.
pub(super) fn comparison(
    facts: &Facts<'_>,
    program: &Program,
    newer: &Program,
    place: &Place,
    bytes: &dyn MapBytes,
) -> Option<Comparison> {
    let (stale, current) = (tables(facts, program, bytes)?, tables(facts, newer, bytes)?);
    compare(bytes, &stale, &current, place).ok()
}

/// Two maps of the same name, those of services first.
fn twins<'a>(facts: &'a Facts<'_>, program: &Program, newer: &Program) -> Option<(&'a Map, &'a Map)> {
    let maps = |program: &Program| -> Vec<&'a Map> {
        program.maps.iter().filter_map(|id| facts.maps.get(id)).collect()
    };
    let newers = maps(newer);
    let pairs = maps(program).into_iter().filter_map(|map| {
        let twin = newers
            .iter()
            .find(|twin| twin.name == map.name && twin.id != map.id)?;
        (!map.name.contains('.')).then_some((map, *twin))
    });
    pairs.min_by_key(|(map, _)| {
        let layout = map.layout.as_deref().unwrap_or_default();
        let services = ["services", "frontends", "FRONTENDS"]
            .iter()
            .any(|word| layout.contains(word));
        (!services, map.layout.is_none(), map.id)
    })
}

fn loaded(program: &Program) -> String {
    program
        .loaded_seconds_ago
        .map_or_else(String::new, |seconds| format!(", loaded {}", ago(seconds)))
}

/// `Program 113 (cil_sock4_conne, loaded 6 days ago) runs first at …`
fn tell(scene: &Scene<'_>, suspected: &str) -> String {
    let Scene {
        attachment,
        program,
        newer,
        comparison,
        maps,
    } = scene;
    let mut story = format!(
        "Program {} ({}{}){suspected} runs {} at {}",
        program.id,
        program.name,
        loaded(program),
        turn(attachment, newer.map(|(at, _)| at)),
        attachment.place
    );
    match (maps, newer) {
        (Some((map, twin)), Some((at, newer))) => {
            let _ = write!(
                story,
                " and reads map {} ({}); program {} ({}{}) runs {} and reads map {} of the same name.",
                map.id,
                map.name,
                newer.id,
                newer.name,
                loaded(newer),
                if runs_before(attachment, at) {
                    "after it"
                } else {
                    "before it"
                },
                twin.id
            );
            story.push_str(&consequence(scene, map, twin, newer.id));
            story.push_str(&pins(map, twin));
        }
        (_, Some((_, newer))) => {
            let _ = write!(
                story,
                ", where program {} ({}{}) is the current one.",
                newer.id,
                newer.name,
                loaded(newer)
            );
        }
        (_, None) => story.push_str(", where no current program is known."),
    }
    if comparison.compared > 0 && !comparison.complete {
        story.push_str(" Only a part of the services was compared.");
    }
    let _ = match &attachment.manner {
        Manner::Legacy { .. } => write!(
            story,
            " Program {} is attached the legacy way, which neither a process nor a pin keeps: it stays until it is \
             detached.",
            program.id
        ),
        manner => write!(story, " What keeps program {} attached: {manner}.", program.id),
    };
    story
}

/// Whether the first runs before the second: at one place by their order, otherwise the lower cgroup first.
pub(crate) fn runs_before(one: &Attachment, other: &Attachment) -> bool {
    if one.place == other.place {
        return one.order < other.order;
    }
    match (&one.place, &other.place) {
        (
            Place::Cgroup { path: Some(path), .. },
            Place::Cgroup {
                path: Some(others), ..
            },
        ) => path.starts_with(others),
        // XDP is at ingress alone; TCX runs before filters in both directions.
        (Place::Device { layer, .. }, Place::Device { layer: others, .. }) => layer < others,
        _ => false,
    }
}

fn turn(attachment: &Attachment, newer: Option<&Attachment>) -> String {
    match newer {
        Some(newer) if runs_before(attachment, newer) => "first".to_owned(),
        _ => format!("as number {}", attachment.order + 1),
    }
}

fn consequence(scene: &Scene<'_>, map: &Map, twin: &Map, newer: u32) -> String {
    let Comparison {
        misled,
        in_all,
        compared,
        ..
    } = &scene.comparison;
    let first = scene
        .newer
        .is_none_or(|(at, _)| runs_before(scene.attachment, at));
    let Some(Misled {
        service,
        stale,
        current,
    }) = misled.first()
    else {
        return if *compared > 0 {
            format!(
                " At the moment both say the same of all {compared} services; that ends with the next change."
            )
        } else {
            String::new()
        };
    };
    let mut text = if first {
        format!(
            " The first decides: by map {}, {service} is {stale}; program {newer} then sees an address that is no service, \
             and lets it pass. By map {} it would be {current}.",
            map.id, twin.id
        )
    } else {
        format!(
            " By map {}, {service} is {stale}; by map {}, which decides as long as it knows the service, it is {current}.",
            map.id, twin.id
        )
    };
    let _ = write!(text, " {in_all} of {compared} services differ.");
    text
}

fn pins(map: &Map, twin: &Map) -> String {
    match (map.pinned_at.first(), twin.pinned_at.first()) {
        (None, Some(path)) => format!(
            " Map {} is pinned at {}, map {} nowhere: nothing writes to it any more.",
            twin.id,
            path.display(),
            map.id
        ),
        (None, None) => format!(" Neither map {} nor map {} is pinned.", map.id, twin.id),
        (Some(path), Some(twins)) => format!(
            " Both are pinned, map {} at {}, map {} at {}.",
            map.id,
            path.display(),
            twin.id,
            twins.display()
        ),
        (Some(path), None) => format!(
            " Map {} is pinned at {}, map {} nowhere.",
            map.id,
            path.display(),
            twin.id
        ),
    }
}
