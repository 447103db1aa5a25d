//! Problems as text.

use doctor::report::{Problem, ProblemKind, Report};

use super::text::{paragraph, table};

/// Limit of problems of one kind that a page describes one by one; it names the rest together.
const ALIKE: usize = 3;
/// Limit of services that a page shows for one problem.
const MISLED: usize = 3;

/// Problems, worst first. A page groups many of one kind, and omits none.
pub(super) fn problems(report: &Report, page: Option<Page>, width: u16) -> String {
    let mut text = String::new();
    let mut alike: Vec<(&Problem, Vec<&Problem>)> = Vec::new();
    for (problem, number) in report.problems.iter().zip(1..) {
        let number: usize = number;
        let before = report.problems.iter().take(number - 1);
        let before = before.filter(|other| is_like(other, problem)).count();
        if page.is_some() && before >= ALIKE {
            match alike.iter_mut().find(|(first, _)| is_like(first, problem)) {
                Some((_, others)) => others.push(problem),
                None => alike.push((problem, vec![problem])),
            }
            continue;
        }
        text += &paragraph(&format!("{number}. {}", problem.summary), 0, width);
        text += &paragraph(&problem.story, 3, width);
        text += &misled(problem, page.map_or(usize::MAX, |_| MISLED), width);
        if !problem.remedy.is_empty() {
            text += &paragraph(&format!("To do: {}", problem.remedy), 3, width);
        }
        text.push('\n');
    }
    for (_, others) in alike {
        text += &paragraph(&together(&others), 0, width);
        text.push('\n');
    }
    text
}

/// Marks that the text is for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page;

/// Failed checks are not grouped: they are few, and each is about something else.
fn is_like(one: &Problem, other: &Problem) -> bool {
    one.kind != ProblemKind::CheckFailed && (one.kind, one.certainty) == (other.kind, other.certainty)
}

/// One text for all problems of one kind after the first.
fn together(problems: &[&Problem]) -> String {
    /// Limit of named programs.
    const NAMED: usize = 12;
    let programs: Vec<String> = problems
        .iter()
        .flat_map(|problem| &problem.programs)
        .map(ToString::to_string)
        .collect();
    let (named, others) = programs.split_at(programs.len().min(NAMED));
    let others = match others.len() {
        0 => String::new(),
        count => format!(" and {count} others"),
    };
    format!(
        "And {} more of this kind, which -v tells of one by one: programs {}{others}.",
        problems.len(),
        named.join(", ")
    )
}

/// Services that two generations of maps see differently.
fn misled(problem: &Problem, most: usize, width: u16) -> String {
    if problem.misled.is_empty() {
        return String::new();
    }
    let shown = problem.misled.iter().take(most);
    let left = problem.misled_in_all.saturating_sub(shown.len());
    let rows = shown.map(|misled| {
        [
            misled.service.clone(),
            misled.stale.to_string(),
            misled.current.to_string(),
        ]
    });
    let text = table(["SERVICE", "THERE", "BY THE CURRENT MAPS"], rows, 3, width);
    match left {
        0 => text,
        more => format!("{text}   and {more} more\n"),
    }
}
