//! Programs that are attached nowhere: those that tail calls reach, and the others with what keeps them loaded.

use std::path::PathBuf;

use doctor::{
    ago,
    report::{Holder, Loose, Report},
};

use super::{
    show::whose,
    text::{paragraph, table},
};

/// Both tables.
pub(super) fn loose(report: &Report, width: u16) -> String {
    let (called, idle): (Vec<&Loose>, Vec<&Loose>) =
        report.loose.iter().partition(|loose| loose.in_use().is_some());
    reached(report, &called, width) + &nowhere(report, &idle, width)
}

/// Programs that run by tail calls, grouped by caller.
fn reached(report: &Report, called: &[&Loose], width: u16) -> String {
    if called.is_empty() {
        return String::new();
    }
    let mut calls: Vec<(String, Vec<[String; 4]>)> = Vec::new();
    for loose in called {
        let (how, row) = (how_called(report, loose), columns(report, loose));
        match calls.iter_mut().find(|(known, _)| *known == how) {
            Some((_, rows)) => rows.push(row),
            None => calls.push((how, vec![row])),
        }
    }
    let mut text = "REACHED BY TAIL CALLS\n".to_owned();
    for (how, rows) in calls {
        text += &paragraph(&format!("{how}:"), 2, width);
        text += &table(["PROGRAM", "TYPE", "LOADED", "WHOSE"], rows, 4, width);
    }
    text + "\n"
}

/// Programs that no tail call reaches.
fn nowhere(report: &Report, idle: &[&Loose], width: u16) -> String {
    if idle.is_empty() {
        return String::new();
    }
    let rows = idle.iter().map(|loose| {
        let [id, kind, loaded, whose] = columns(report, loose);
        [id, kind, loaded, whose, kept_by(report, loose, usize::MAX)]
    });
    let heading = ["PROGRAM", "TYPE", "LOADED", "WHOSE", "KEPT BY"];
    format!(
        "LOADED, AND ATTACHED NOWHERE THAT CAN BE SEEN\n{}\n",
        table(heading, rows, 2, width)
    )
}

fn columns(report: &Report, loose: &Loose) -> [String; 4] {
    let program = report.programs.get(&loose.program);
    [
        title(report, loose.program),
        program.map(|program| program.kind.clone()).unwrap_or_default(),
        program
            .and_then(|program| program.loaded_seconds_ago)
            .map(ago)
            .unwrap_or_default(),
        program
            .map(|program| whose(program, loose.standing))
            .unwrap_or_default(),
    ]
}

/// Id and name, for cells.
fn title(report: &Report, id: u32) -> String {
    let program = report.programs.get(&id);
    program.map_or_else(
        || id.to_string(),
        |program| format!("{} {}", program.id, program.name),
    )
}

/// The callers and arrays through which tail calls reach a program.
fn how_called(report: &Report, loose: &Loose) -> String {
    let Some(called) = &loose.tail_called else {
        return String::new();
    };
    let map = report.maps.get(&called.map).map_or("", |map| map.name.as_str());
    let through = format!("through map {} '{map}'", called.map);
    match &called.from {
        Some(from) if from.program == called.caller => {
            let caller = title(report, called.caller);
            format!("tail-called from {caller} at {} {through}", from.place)
        }
        Some(from) => format!(
            "tail-called from {} {through}, which is reached from {} at {}",
            title(report, called.caller),
            title(report, from.program),
            from.place
        ),
        None => format!(
            "only tail-called by programs that are attached nowhere: {} {through}",
            title(report, called.caller)
        ),
    }
}

/// What keeps a program loaded that no tail call reaches: pins and holders, at most `most` of each.
pub(super) fn kept_by(report: &Report, loose: &Loose, most: usize) -> String {
    if loose.tail_called.is_some() {
        return how_called(report, loose);
    }
    let program = report.programs.get(&loose.program);
    let kept = program.map(|program| kept(&program.pinned_at, &program.held_by, most));
    match (kept.unwrap_or_default(), loose.called_from.as_slice()) {
        (kept, _) if !kept.is_empty() => kept,
        (_, [map, ..]) => format!("map {map}, an array of programs that no program uses"),
        (_, []) => "nothing that can be seen".to_owned(),
    }
}

fn kept(pinned_at: &[PathBuf], held_by: &[Holder], most: usize) -> String {
    let pins = pinned_at.iter().map(|path| path.display().to_string());
    let holders = held_by.iter().map(ToString::to_string);
    let mut keepers: Vec<String> = pins.chain(holders).take(most).collect();
    let left = pinned_at.len() + held_by.len() - keepers.len();
    if left > 0 {
        keepers.push(format!("and {left} others"));
    }
    keepers.join(", ")
}

#[cfg(test)]
mod tests {
    use super::{super::fixture::cilium, *};

    #[test]
    fn a_tail_called_program_is_told_with_its_caller_its_array_and_where_that_begins() {
        let report = cilium(1, 2);
        let told: Vec<String> = report
            .loose
            .iter()
            .map(|loose| how_called(&report, loose))
            .collect();
        assert_eq!(
            told,
            [
                "tail-called from 1000 cil_from_contai at tcx ingress of lxc0 through map 2000 'cilium_calls_00'",
                "tail-called from 10000 tail_call_0 through map 2000 'cilium_calls_00', which is reached from 1000 \
                 cil_from_contai at tcx ingress of lxc0",
                "only tail-called by programs that are attached nowhere: 9001 tail_old through map 2000 'cilium_calls_00'",
            ]
        );
    }

    #[test]
    fn many_keepers_are_counted() {
        let holders = [1, 2, 3].map(|pid| Holder {
            pid,
            command: "agent".to_owned(),
        });
        let pins = ["/sys/fs/bpf/x".into()];
        assert_eq!(kept(&pins, &holders, 1), "/sys/fs/bpf/x, and 3 others");
        assert_eq!(
            kept(&[], &holders, 3),
            "agent (pid 1), agent (pid 2), agent (pid 3)"
        );
    }
}
