//! The full report as text: `plumbline doctor -v`.

use std::collections::{BTreeMap, BTreeSet};

use doctor::{
    ago,
    report::{Attachment, Certainty, Map, Outcome, Place, Program, Report, Services, Standing, Verdict},
};

use super::{
    loose::loose,
    problems::problems,
    text::{paragraph, table},
};
use crate::plural::counted;

/// The full report.
pub(super) fn report(report: &Report, width: u16) -> String {
    let mut text = problems(report, None, width);
    text += &attachments(report, width);
    text += &loose(report, width);
    text += &maps(report, width);
    text += &services(report, width);
    if !report.checks.is_empty() {
        text.push_str("CHECKS\n");
        for check in &report.checks {
            let sign = match check.outcome {
                Outcome::Good => "ok",
                Outcome::Note => "note",
                Outcome::Bad => "BAD",
            };
            text += &paragraph(&format!("{sign}: {}", check.text), 2, width);
        }
        text.push('\n');
    }
    text + &blind(report, width) + &verdict(report, width)
}

/// Programs, place by place.
fn attachments(report: &Report, width: u16) -> String {
    let mut text = String::new();
    let mut shown: Vec<(String, Vec<&Attachment>)> = Vec::new();
    for attachment in report
        .attachments
        .iter()
        .filter(|one| one.standing != Standing::OtherNode)
    {
        let whole = attachment.place.whole();
        match shown.iter_mut().find(|(place, _)| *place == whole) {
            Some((_, here)) => here.push(attachment),
            None => shown.push((whole, vec![attachment])),
        }
    }
    for (place, here) in &shown {
        text += &format!("{place}\n");
        let rows = here.iter().map(|attachment| row(report, attachment));
        let heading = [
            "HOOK",
            "TURN",
            "PROGRAM",
            "LOADED",
            "WHOSE",
            "MAPS",
            "ATTACHED BY",
            "",
        ];
        text += &table(heading, rows, 2, width);
    }
    if text.is_empty() {
        text.push_str("No program is attached where load balancing is done.\n");
    }
    let elsewhere = report.attachments.len() - shown.iter().map(|(_, here)| here.len()).sum::<usize>();
    if elsewhere > 0 {
        let other = "attachments of other nodes that this kernel runs too are not shown here, but by --json.";
        text += &paragraph(&format!("{elsewhere} {other}"), 0, width);
    }
    if !report.others.is_empty() {
        let others: Vec<String> = report
            .others
            .iter()
            .map(|(hook, count)| format!("{count} at {hook}"))
            .collect();
        text += &paragraph(
            &format!(
                "Attached to cgroups, and without a part in load balancing: {}.",
                others.join(", ")
            ),
            0,
            width,
        );
    }
    text + "\n"
}

fn row(report: &Report, attachment: &Attachment) -> [String; 8] {
    let program = report.programs.get(&attachment.program);
    [
        attachment.place.hook(),
        (attachment.order + 1).to_string(),
        program.map_or_else(
            || attachment.program.to_string(),
            |program| format!("{} {}", program.id, program.name),
        ),
        program
            .and_then(|program| program.loaded_seconds_ago)
            .map(ago)
            .unwrap_or_default(),
        program
            .map(|program| whose(program, attachment.standing))
            .unwrap_or_default(),
        program
            .map(|program| maps_of(report, program))
            .unwrap_or_default(),
        attachment.manner.to_string(),
        stale(attachment).to_owned(),
    ]
}

/// How certain it is that an attachment is stale; empty if it is not stale.
pub(super) fn stale(attachment: &Attachment) -> &'static str {
    match attachment.stale.as_ref().map(|stale| stale.certainty) {
        Some(Certainty::Certain) => "STALE",
        Some(Certainty::Suspected) => "STALE (suspected)",
        None => "",
    }
}

pub(super) fn whose(program: &Program, standing: Standing) -> String {
    match standing {
        Standing::OtherNode => format!("{}, another node's", program.owner.whose),
        Standing::Current | Standing::Earlier => program.owner.whose.to_string(),
        Standing::Foreign if program.owner.because.is_empty() => "unknown".to_owned(),
        Standing::Foreign => format!("{} ?", program.owner.whose),
    }
}

/// Ids of maps, with names for those that have services: the table of maps has the rest.
fn maps_of(report: &Report, program: &Program) -> String {
    /// Limit of named maps in a cell.
    const NAMED: usize = 4;
    let maps: Vec<&Map> = program.maps.iter().filter_map(|id| report.maps.get(id)).collect();
    let named = maps
        .iter()
        .take(NAMED)
        .map(|map| format!("{} {}", map.id, map.name));
    let mut cell: Vec<String> = named.collect();
    if let Some(more) = maps.len().checked_sub(NAMED).filter(|more| *more > 0) {
        cell.push(format!("{more} more"));
    }
    cell.join(", ")
}

fn maps(report: &Report, width: u16) -> String {
    if report.maps.is_empty() {
        return String::new();
    }
    let mut users: BTreeMap<u32, usize> = report.prog_arrays.iter().map(|array| (array.map, 0)).collect();
    let other_nodes: BTreeSet<u32> = report
        .attachments
        .iter()
        .filter(|one| one.standing == Standing::OtherNode)
        .map(|one| one.program)
        .collect();
    for program in report
        .programs
        .values()
        .filter(|program| !other_nodes.contains(&program.id))
    {
        for map in &program.maps {
            *users.entry(*map).or_default() += 1;
        }
    }
    let maps = report.maps.values();
    let rows = maps
        .filter_map(|map| Some((map, users.get(&map.id)?)))
        .map(|(map, users)| {
            [
                map.id.to_string(),
                map.name.clone(),
                map.kind.clone(),
                format!("{}/{}", map.key_size, map.value_size),
                map.max_entries.to_string(),
                map.layout.clone().unwrap_or_else(|| "not known here".to_owned()),
                map.pinned_at
                    .first()
                    .map_or_else(|| "nowhere".to_owned(), |path| path.display().to_string()),
                users.to_string(),
            ]
        });
    let heading = [
        "MAP",
        "NAME",
        "TYPE",
        "KEY/VALUE",
        "ENTRIES",
        "LAYOUT",
        "PINNED",
        "PROGRAMS",
    ];
    format!("MAPS\n{}\n", table(heading, rows, 2, width))
}

/// The services of every set of maps, with `--services`.
pub(super) fn services(report: &Report, width: u16) -> String {
    let all = report.services.iter().flatten();
    all.map(|services| services_of(services, width)).collect()
}

fn services_of(services: &Services, width: u16) -> String {
    let maps: Vec<String> = services.maps.iter().map(ToString::to_string).collect();
    let programs: Vec<String> = services.programs.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "SERVICES BY MAP {} ({}, read by program {})\n",
        maps.join(" AND "),
        services.whose,
        programs.join(", ")
    );
    if let Some(error) = &services.unreadable {
        text += &paragraph(&format!("can't be read: {error}"), 2, width);
    }
    let rows = services
        .services
        .iter()
        .map(|(service, answer)| [service.clone(), answer.to_string()]);
    text += &table(["SERVICE", "FOR SOCKETS OF THIS NODE"], rows, 2, width);
    if !services.complete {
        text.push_str("  and others, which were not read\n");
    }
    text + "\n"
}

pub(super) fn blind(report: &Report, width: u16) -> String {
    if report.blind.is_empty() {
        return String::new();
    }
    let mut text = "COULD NOT BE LOOKED AT\n".to_owned();
    for blind in &report.blind {
        text += &paragraph(
            &format!("{}: {}. {}", blind.what, blind.why, blind.remedy),
            2,
            width,
        );
    }
    text + "\n"
}

/// The verdict in one line.
pub(super) fn verdict(report: &Report, width: u16) -> String {
    let places: std::collections::BTreeSet<&Place> =
        report.attachments.iter().map(|one| &one.place).collect();
    let seen = format!(
        "{} at {}",
        counted(report.attachments.len(), "program", "programs"),
        counted(places.len(), "place", "places")
    );
    let called = match report
        .loose
        .iter()
        .filter(|loose| loose.in_use().is_some())
        .count()
    {
        0 => String::new(),
        count => format!(", {count} reached by tail calls"),
    };
    let blind = match report.blind.len() {
        0 => String::new(),
        count => format!(", {} could not be looked at", counted(count, "thing", "things")),
    };
    let verdict = match report.verdict {
        Verdict::Healthy => "healthy".to_owned(),
        Verdict::Problems => counted(report.problems.len(), "problem", "problems"),
    };
    paragraph(&format!("{verdict}: {seen}{called}{blind}"), 0, width)
}
