//! The report on a page: the verdict, problems, and programs that can rewrite an address first; the rest by number.

use std::collections::{BTreeMap, BTreeSet};

use doctor::report::{Attachment, Loose, Outcome, Report};

use super::{
    group::{Group, groups},
    loose::kept_by,
    problems::{Page, problems},
    show::{blind, services, verdict, whose},
    text::{paragraph, table},
};
use crate::plural::counted;

/// Limit of rows in a table of the page; stale attachments are shown beyond it.
const ROWS: usize = 12;

/// The page: what fits on a terminal without scrolling, on an ordinary node.
pub(super) fn page(report: &Report, width: u16) -> String {
    let (groups, others) = groups(report);
    let mut text = verdict(report, width);
    text.push('\n');
    text += &problems(report, Some(Page), width);
    text += &rewriting(groups, width);
    text += &services(report, width);
    let notes = report
        .checks
        .iter()
        .filter(|check| check.outcome == Outcome::Note);
    let mut beside: Vec<String> = [besides(report, &others), called(report)]
        .into_iter()
        .flatten()
        .collect();
    beside.extend(idle(report));
    beside.extend(maps(report));
    beside.extend(notes.map(|check| format!("note: {}", check.text)));
    for line in &beside {
        text += &paragraph(line, 0, width);
    }
    if !beside.is_empty() {
        text.push('\n');
    }
    text += &blind(report, width);
    text + "-v lists every program, tail call and map; --json has the same for machines.\n"
}

/// Programs that can rewrite an address: at sockets, then at devices.
fn rewriting(groups: Vec<Group<'_>>, width: u16) -> String {
    if groups.is_empty() {
        return "No program is attached where addresses are rewritten.\n\n".to_owned();
    }
    let mut text = "WHAT CAN REWRITE AN ADDRESS, IN THE ORDER IN WHICH A CONNECTION MEETS IT\n".to_owned();
    let (devices, sockets): (Vec<Group<'_>>, Vec<Group<'_>>) =
        groups.into_iter().partition(Group::is_at_devices);
    text += &rows("sockets", sockets, width);
    text += &rows("packets", devices, width);
    text += &paragraph(
        "After programs at ingress, before those at egress: rules of nftables and iptables, which are not looked at \
         (`nft list ruleset`).",
        2,
        width,
    );
    text.push('\n');
    text
}

/// One table of at most [`ROWS`] rows, plus the stale ones.
fn rows(what: &str, groups: Vec<Group<'_>>, width: u16) -> String {
    if groups.is_empty() {
        return String::new();
    }
    // A place that all rows share is named once.
    let places: BTreeSet<&String> = groups.iter().flat_map(|group| &group.places).collect();
    let common = match places.first() {
        Some(place) if places.len() == 1 => Some((*place).clone()),
        _ => None,
    };
    let heading = match &common {
        Some(place) => format!("  {what}, at {place}\n"),
        None => format!("  {what}\n"),
    };
    let (mut shown, mut left) = (Vec::new(), Vec::new());
    for group in groups {
        if shown.len() < ROWS || !group.stale.is_empty() {
            shown.push(group);
        } else {
            left.push(group);
        }
    }
    let cells = shown.iter().map(|group| {
        [
            group.hook.clone(),
            group.turn.to_string(),
            group.programs(),
            group.whose.clone(),
            common.as_ref().map_or_else(|| group.at(), |_| String::new()),
            group.stale.to_owned(),
        ]
    });
    let at = if common.is_some() { "" } else { "AT" };
    let table = table(["HOOK", "TURN", "PROGRAM", "WHOSE", at, ""], cells, 2, width);
    let rest = if left.is_empty() {
        String::new()
    } else {
        let attached: usize = left.iter().map(|group| group.places.len()).sum();
        let hooks: BTreeSet<&str> = left.iter().map(|group| group.hook.as_str()).collect();
        let hooks: Vec<&str> = hooks.into_iter().collect();
        paragraph(
            &format!("and {attached} more at {}, none of them stale", hooks.join(", ")),
            2,
            width,
        )
    };
    heading + &table + &rest
}

/// Programs at hooks where addresses are not rewritten, by owner.
fn besides(report: &Report, others: &[&Attachment]) -> Option<String> {
    let mut owners: BTreeMap<String, (usize, BTreeSet<String>)> = BTreeMap::new();
    for attachment in others {
        let program = report.programs.get(&attachment.program);
        let whose = program.map_or_else(String::new, |program| whose(program, attachment.standing));
        let (count, hooks) = owners.entry(whose).or_default();
        *count += 1;
        hooks.insert(attachment.place.hook());
    }
    let owners = owners.into_iter().map(|(whose, (count, hooks))| {
        let hooks: Vec<String> = hooks.into_iter().collect();
        format!("{whose} {count} ({})", hooks.join(", "))
    });
    let others = report
        .others
        .iter()
        .map(|(hook, count)| format!("{count} at {hook}"));
    let all: Vec<String> = owners.chain(others).collect();
    (!all.is_empty()).then(|| format!("Attached where no address is rewritten: {}.", all.join("; ")))
}

/// Programs that tail calls reach, by owner.
fn called(report: &Report) -> Option<String> {
    let called: Vec<&Loose> = report
        .loose
        .iter()
        .filter(|loose| loose.in_use().is_some())
        .collect();
    let arrays: BTreeSet<u32> = called
        .iter()
        .filter_map(|loose| Some(loose.tail_called.as_ref()?.map))
        .collect();
    (!called.is_empty()).then(|| {
        format!(
            "In use, by tail calls from programs that are attached: {} ({}), through {}.",
            counted(called.len(), "program", "programs"),
            by_owner(report, &called),
            counted(arrays.len(), "array of programs", "arrays of programs")
        )
    })
}

/// The number of programs of each owner.
fn by_owner(report: &Report, loose: &[&Loose]) -> String {
    let mut owners: BTreeMap<String, usize> = BTreeMap::new();
    for loose in loose {
        let program = report.programs.get(&loose.program);
        let whose = program.map_or_else(String::new, |program| whose(program, loose.standing));
        *owners.entry(whose).or_default() += 1;
    }
    let owners: Vec<String> = owners
        .into_iter()
        .map(|(whose, count)| format!("{whose} {count}"))
        .collect();
    owners.join(", ")
}

/// Programs that are attached nowhere and that nothing reaches: those that only each other call, and the rest, with
/// what keeps a few of them loaded.
fn idle(report: &Report) -> Vec<String> {
    /// Limit of programs that are named with what keeps them loaded.
    const NAMED: usize = 3;
    let idle = report.loose.iter().filter(|loose| loose.in_use().is_none());
    let (called, kept): (Vec<&Loose>, Vec<&Loose>) = idle.partition(|loose| loose.tail_called.is_some());
    let mut lines = Vec::new();
    if !called.is_empty() {
        lines.push(format!(
            "Only tail-called by programs that are attached nowhere: {} ({}).",
            counted(called.len(), "program", "programs"),
            by_owner(report, &called)
        ));
    }
    let named = kept.iter().take(NAMED).map(|loose| {
        let name = report
            .programs
            .get(&loose.program)
            .map_or("", |program| program.name.as_str());
        let keepers = kept_by(report, loose, 1);
        format!("{} {name}, kept by {keepers}", loose.program)
    });
    let named: Vec<String> = named.collect();
    if !kept.is_empty() {
        let more = match kept.len() - named.len() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        lines.push(format!(
            "Loaded, and attached nowhere that can be seen: {} ({}): {}{more}.",
            counted(kept.len(), "program", "programs"),
            by_owner(report, &kept),
            named.join("; ")
        ));
    }
    lines
}

/// How many maps there are, and how many are readable.
fn maps(report: &Report) -> Option<String> {
    let known = report.maps.values().filter(|map| map.layout.is_some()).count();
    let read = match known {
        0 => String::new(),
        known => format!("; the layout of {known} is known here"),
    };
    let maps = counted(report.maps.len(), "map", "maps");
    (!report.maps.is_empty()).then(|| format!("Used by these programs: {maps}{read}."))
}

#[cfg(test)]
mod tests {
    use doctor::report::{Certainty, Direction, Layer, Problem, ProblemKind, Stale, Verdict};

    use super::{
        super::{
            fixture::{attach, cilium, device, program},
            show,
        },
        *,
    };

    /// Columns of the narrowest common terminal.
    const NARROW: u16 = 80;

    #[test]
    fn a_node_of_hundreds_of_programs_is_a_page() {
        let report = cilium(37, 6);
        let text = page(&report, NARROW);
        insta::assert_snapshot!("page", text);
        let all = show::report(&report, NARROW);
        assert!(all.lines().count() > 400, "-v has all of it:\n{all}");
        for id in report.programs.keys() {
            assert!(all.contains(&format!("{id} ")), "{id} is missing:\n{all}");
        }
    }

    /// A problem of one kind, about programs with ids from `program`.
    fn problem(program: u32) -> Problem {
        Problem {
            kind: ProblemKind::StalePrograms,
            certainty: Certainty::Suspected,
            summary: format!("program {program} is suspected to be stale"),
            story: format!("It runs first. ({program})"),
            remedy: "evict it".to_owned(),
            programs: vec![program],
            against: Vec::new(),
            misled: Vec::new(),
            misled_in_all: 0,
        }
    }

    #[test]
    fn what_is_wrong_is_never_left_out() {
        let mut report = cilium(3, 1);
        report.verdict = Verdict::Problems;
        report.problems = (1000..1005).map(problem).collect();
        // More hooks than a table shows, and the last ones stale.
        for number in 0..20 {
            let (id, name) = (3000 + number, format!("other_{number}"));
            program(&mut report, id, &name, "sched_cls", &[]);
            let place = device("eth1", 3, Layer::Clsact, Direction::Egress);
            attach(&mut report, place, number, id);
        }
        let last = report.attachments.last_mut().expect("attached");
        last.stale = Some(Stale {
            certainty: Certainty::Suspected,
            newer: None,
            reasons: Vec::new(),
        });
        let text = page(&report, NARROW);
        assert!(text.starts_with("5 problems: "), "{text}");
        for expected in [
            "1. program 1000",
            "2. program 1001",
            "3. program 1002",
            "And 2 more of this kind, which -v tells of one by one: programs 1003, 1004.",
            "3019 other_19",
            "STALE",
            "and 11 more at clsact egress, none of them stale",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        let all = show::report(&report, NARROW);
        assert!(all.contains("5. program 1004"), "{all}");
        assert!(
            text.find("1. program 1000") < text.find("WHAT CAN REWRITE"),
            "{text}"
        );
    }

    #[test]
    fn a_node_without_programs_is_three_lines() {
        let mut report = cilium(0, 0);
        report.attachments.clear();
        report.loose.clear();
        report.programs.clear();
        report.others.clear();
        report.checks.clear();
        assert_eq!(
            page(&report, NARROW),
            "healthy: 0 programs at 0 places\n\nNo program is attached where addresses are rewritten.\n\n\
             -v lists every program, tail call and map; --json has the same for machines.\n"
        );
    }
}
