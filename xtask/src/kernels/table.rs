//! Table of kernel × feature; and whether the documentation's table agrees.

use std::fmt::Write as _;

use anyhow::Context as _;

use super::findings::{Findings, Tests};

/// Page with the documentation's table.
pub(super) const PAGE: &str = "docs/kernels.md";
/// Beginning of the first line of its table.
const HEADER: &str = "    feature ";

/// The whole table.
pub(super) fn of(findings: &[Findings]) -> String {
    let mut rows = vec![row("feature", findings, Findings::release)];
    for name in names(findings) {
        rows.push(row(&name, findings, |found| match offered(found, &name) {
            Some(true) => "yes".to_owned(),
            Some(false) => "no".to_owned(),
            None => "?".to_owned(),
        }));
    }
    rows.push(row("programs accepted", findings, |found| {
        let verified = found.verified.unwrap_or_default();
        verified.programs.to_string()
    }));
    rows.push(row("most instructions walked through", findings, |found| {
        let verified = found.verified.unwrap_or_default();
        verified.most_processed.to_string()
    }));
    for (title, part) in [
        ("packet tables", "packets"),
        ("socket tests", "sockets"),
        ("the doctor's tests", "doctor"),
    ] {
        if findings.iter().any(|found| found.tests.contains_key(part)) {
            rows.push(row(title, findings, |found| {
                found.tests.get(part).map_or_else(none, tests)
            }));
        }
    }
    if findings.iter().any(|found| !found.cases.is_empty()) {
        rows.push(row("cases in a lab", findings, cases));
    }
    let mut text = aligned(&rows);
    for found in findings {
        let _ = writeln!(text, "\n{} ({})", found.kernel, found.took);
        for problem in &found.problems {
            let _ = writeln!(text, "  FAILED   {problem}");
        }
        for skip in found.tests.values().flat_map(|tests| &tests.skipped) {
            let _ = writeln!(text, "  skipped  {skip}");
        }
        if found.is_clean() {
            let _ = writeln!(text, "  all that ran held");
        }
    }
    text
}

/// Differences between the page's table and the findings, for the kernels that it names.
pub(super) fn differences(page: &str, findings: &[Findings]) -> anyhow::Result<Vec<String>> {
    let stated = stated(page).with_context(|| format!("{PAGE} has no table that begins with {HEADER:?}"))?;
    let mut differences = Vec::new();
    for found in findings {
        let release = found.release();
        let Some(column) = stated.releases.iter().position(|stated| *stated == release) else {
            continue;
        };
        for (name, offered) in &found.features {
            let said = stated.rows.iter().find(|(stated, _)| stated == name);
            let said = said
                .and_then(|(_, cells)| cells.get(column))
                .map_or("nothing", String::as_str);
            let is = if *offered { "yes" } else { "no" };
            if said != is {
                differences.push(format!("{PAGE} says {said} of {name} on {release}: it is {is}"));
            }
        }
    }
    Ok(differences)
}

/// The page's table.
struct Stated {
    releases: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
}

/// At least two blanks separate columns.
fn stated(page: &str) -> Option<Stated> {
    let mut lines = page.lines().skip_while(|line| !line.starts_with(HEADER));
    let cells = |line: &str| -> Vec<String> {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect()
    };
    let header = cells(lines.next()?);
    let rows = lines.take_while(|line| line.starts_with("    ")).map(|line| {
        let mut cells = cells(line);
        (cells.remove(0), cells)
    });
    Some(Stated {
        releases: header.into_iter().skip(1).collect(),
        rows: rows.collect(),
    })
}

/// Names of all features, in the order of their first occurrence.
fn names(findings: &[Findings]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in findings.iter().flat_map(|found| &found.features) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn offered(found: &Findings, name: &str) -> Option<bool> {
    let feature = found.features.iter().find(|(known, _)| known == name);
    feature.map(|(_, offered)| *offered)
}

fn tests(tests: &Tests) -> String {
    let mut text = format!("{} passed", tests.passed);
    for (count, what) in [(tests.failed.len(), "failed"), (tests.skipped.len(), "skipped")] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    text
}

fn cases(found: &Findings) -> String {
    let passed = found.cases.values().filter(|verdict| *verdict == "pass").count();
    format!("{passed} of {} passed", found.cases.len())
}

fn none() -> String {
    "none".to_owned()
}

fn row(title: &str, findings: &[Findings], cell: impl Fn(&Findings) -> String) -> Vec<String> {
    let mut row = vec![title.to_owned()];
    row.extend(findings.iter().map(cell));
    row
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(String::len)
                .max()
        })
        .map(Option::unwrap_or_default)
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = "    ".to_owned();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kernel: &str, tcx: bool) -> Findings {
        Findings {
            kernel: kernel.to_owned(),
            features: vec![("TCX".to_owned(), tcx), ("filters of clsact".to_owned(), true)],
            ..Findings::default()
        }
    }

    #[test]
    fn the_table_is_one_that_readme_can_hold() {
        let all = [found("6.1.0-50-cloud-amd64", false), found("6.12.107", true)];
        let table = of(&all);
        assert!(table.starts_with(HEADER), "{table}");
        let readme = format!("# Title\n\nText.\n\n{table}\nMore.\n");
        assert_eq!(differences(&readme, &all).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_readme_says_otherwise_is_named() {
        let readme = "    feature            6.1   6.12\n    TCX                yes   yes\n\nMore.\n";
        let said = differences(readme, &[found("6.1.0", false), found("7.0.1", true)]).unwrap();
        assert_eq!(
            said,
            [
                "docs/kernels.md says yes of TCX on 6.1: it is no",
                "docs/kernels.md says nothing of filters of clsact on 6.1: it is yes"
            ]
        );
        differences("no table", &[]).expect_err("there is none");
    }
}
