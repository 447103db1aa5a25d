//! `plumbline report compare`: several reports side by side.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use comfy_table::{Table, presets};

use super::{
    coverage::Coverage,
    files,
    format::{Case, Report, Verdict},
    html, text,
};
use crate::{COULD_NOT_RUN, plural::counted, terminal};

const HELP: &str = "\
Prints which cases end differently and what broke in them, and who keeps which claim; the page has all of it, with \
timelines of cases whose evidence lies beside their reports. A case that only some of the reports have counts as a change.

  plumbline report compare before/report.yaml after/report.yaml     what did an upgrade change?
  plumbline report compare */report.yaml --out matrix.html          several implementations
  plumbline report compare a.yaml b.yaml && echo nothing changed    in a script

Exit codes: 0 every case ended alike in all reports, 1 some did not, 2 a file is no report, or the page can't be written.";

/// Compare reports: what changed case by case, and who keeps which claim
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The report.yaml files, at least two
    #[arg(required = true, num_args = 2.., value_name = "REPORT")]
    files: Vec<PathBuf>,
    /// The page to write: one HTML file that needs no network
    #[arg(long, value_name = "FILE", default_value = "comparison.html")]
    out: PathBuf,
    /// Print all claims, not only those that some keep and others do not
    #[arg(long)]
    all: bool,
}

pub(super) fn compare(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut reports = Vec::new();
    let mut problems = 0;
    // Every file is read before the first output, so all that are no reports are named at once.
    for file in &arguments.files {
        match read(file) {
            Ok(report) => reports.push((file.display().to_string(), report)),
            Err(error) => {
                problems += 1;
                eprintln!("plumbline: {error:#}");
            }
        }
    }
    if problems > 0 {
        return Ok(ExitCode::from(COULD_NOT_RUN));
    }
    let comparison = Comparison::of(reports);
    files::put(&arguments.out, &html::comparison(&comparison))?;
    let text = format!(
        "{}\npage: {}\n",
        comparison.text(arguments.all, terminal::width()),
        arguments.out.display()
    );
    terminal::print(&text)?;
    Ok(ExitCode::from(u8::from(comparison.changed().next().is_some())))
}

fn read(file: &Path) -> anyhow::Result<Report> {
    let mut report = files::read(file)?;
    files::read_timelines(&mut report, file.parent().unwrap_or(file))?;
    Ok(report)
}

/// Reports side by side. The first is what the others are compared with.
pub(crate) struct Comparison {
    reports: Vec<Compared>,
    /// Ids of the cases of all reports, in the order of the reports.
    cases: Vec<String>,
}

/// One of several reports.
pub(crate) struct Compared {
    label: String,
    file: String,
    report: Report,
    coverage: Coverage,
}

/// A case in several reports.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    id: &'a str,
    reports: &'a [Compared],
}

impl Comparison {
    /// Compares reports, each with its file.
    pub(crate) fn of(reports: Vec<(String, Report)>) -> Self {
        let names: Vec<String> = reports.iter().map(|(_, report)| name(report)).collect();
        let mut cases: Vec<String> = Vec::new();
        for case in reports.iter().flat_map(|(_, report)| &report.cases) {
            if !cases.contains(&case.id) {
                cases.push(case.id.clone());
            }
        }
        let compared = |(name, (file, report)): (&String, (String, Report))| {
            let is_unique = names.iter().filter(|other| *other == name).count() == 1;
            Compared {
                label: if is_unique {
                    name.clone()
                } else {
                    format!("{name}, {file}")
                },
                coverage: Coverage::of(&report),
                file,
                report,
            }
        };
        Self {
            reports: names.iter().zip(reports).map(compared).collect(),
            cases,
        }
    }

    pub(crate) fn reports(&self) -> &[Compared] {
        &self.reports
    }

    /// All cases.
    pub(crate) fn cases(&self) -> impl Iterator<Item = Row<'_>> {
        self.cases.iter().map(|id| Row {
            id,
            reports: &self.reports,
        })
    }

    /// Cases that did not end alike in all reports.
    pub(crate) fn changed(&self) -> impl Iterator<Item = Row<'_>> {
        self.cases().filter(Row::has_changed)
    }

    /// Claims that at least one report decides, in the order of the cases: id, sentence, and whether each report's target
    /// keeps it.
    pub(crate) fn claims(&self) -> Vec<(&str, &str, Vec<Option<bool>>)> {
        let mut claims: Vec<(&str, &str, Vec<Option<bool>>)> = Vec::new();
        for row in self.cases() {
            for (id, sentence) in row.any().into_iter().flat_map(|case| &case.claims) {
                let kept: Vec<Option<bool>> = self
                    .reports
                    .iter()
                    .map(|compared| compared.coverage.decided().get(id).copied())
                    .collect();
                if kept.iter().any(Option::is_some) && !claims.iter().any(|(known, ..)| *known == id.as_str())
                {
                    claims.push((id.as_str(), sentence.as_str(), kept));
                }
            }
        }
        claims
    }

    /// `5 of 63 cases ended differently`.
    pub(crate) fn sentence(&self) -> String {
        match self.changed().count() {
            0 => format!(
                "{} ended alike in all reports",
                counted(self.cases.len(), "case", "cases")
            ),
            changed => format!(
                "{changed} of {} ended differently",
                counted(self.cases.len(), "case", "cases")
            ),
        }
    }

    /// For a terminal.
    fn text(&self, all_claims: bool, columns: usize) -> String {
        let wrapped = |words: &str, first: &str, others: &str| {
            terminal::wrap(words, first, others, columns).join("\n") + "\n"
        };
        let mut text = String::new();
        for (number, compared) in (1..).zip(&self.reports) {
            text += &format!("{number}  {}: {}\n", compared.label, compared.file);
            text += &wrapped(&text::counts(&compared.report), "   ", "   ");
            text += &wrapped(&compared.coverage.sentence(), "   ", "   ");
        }
        text += &format!("\n{}\n", self.sentence());
        let mut table = self.empty_table("CASE");
        for row in self.changed() {
            let verdicts = row
                .cases()
                .map(|case| case.map_or("not run", Case::label).to_owned());
            table.add_row(std::iter::once(row.id.to_owned()).chain(verdicts));
        }
        if !table.is_empty() {
            text += &format!("{table}\n");
        }
        for row in self.changed() {
            let explained = row.cases().enumerate();
            let explained: Vec<String> = explained
                .filter_map(|(number, case)| {
                    Some(wrapped(
                        &what_broke(case?)?,
                        &format!("  {}  ", number + 1),
                        "     ",
                    ))
                })
                .collect();
            if !explained.is_empty() {
                text += &format!("\n{}\n{}", row.id, explained.concat());
            }
        }
        let claims = self.claims();
        let shown = |kept: &[Option<bool>]| all_claims || kept.windows(2).any(|pair| pair[0] != pair[1]);
        let mut table = self.empty_table("CLAIM");
        for (id, _, kept) in claims.iter().filter(|(.., kept)| shown(kept)) {
            let kept = kept.iter().map(|kept| said(*kept).to_owned());
            table.add_row(std::iter::once((*id).to_owned()).chain(kept));
        }
        let alike = claims
            .iter()
            .filter(|(.., kept)| kept.iter().all(|kept| *kept == Some(true)));
        text += &format!("\n{} kept by all\n", counted(alike.count(), "claim", "claims"));
        if !table.is_empty() {
            text += &format!("{table}\n");
        }
        text
    }

    fn empty_table(&self, first: &str) -> Table {
        let mut table = Table::new();
        let numbers = (1..=self.reports.len()).map(|number| number.to_string());
        table
            .load_style(presets::NOTHING)
            .set_header(std::iter::once(first.to_owned()).chain(numbers));
        table
    }
}

/// What was tested, and where.
fn name(report: &Report) -> String {
    format!("{} on {}", report.cluster.target, report.cluster.provider)
}

/// Whether a claim is kept, in words.
pub(super) fn said(kept: Option<bool>) -> &'static str {
    match kept {
        Some(true) => "kept",
        Some(false) => "not kept",
        None => "not decided",
    }
}

/// What broke in a case, or why it has no verdict; `None` for a pass.
pub(super) fn what_broke(case: &Case) -> Option<String> {
    let why = || (!case.why.is_empty()).then(|| case.why.clone());
    let explained = case.explanation.as_ref().map(|explanation| {
        let event = explanation.event.iter().map(String::as_str);
        let sentences: Vec<&str> = std::iter::once(explanation.happened.as_str())
            .chain(event)
            .collect();
        sentences.join(" ")
    });
    explained.or_else(why).filter(|_| case.verdict != Verdict::Pass)
}

impl Compared {
    /// What was tested, unique among the reports.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    pub(crate) fn coverage(&self) -> &Coverage {
        &self.coverage
    }
}

impl<'a> Row<'a> {
    pub(crate) fn id(&self) -> &'a str {
        self.id
    }

    /// The case in each report.
    pub(crate) fn cases(&self) -> impl Iterator<Item = Option<&'a Case>> {
        let id = self.id;
        let cases = self.reports.iter().map(|compared| compared.report.cases.iter());
        cases.map(move |mut cases| cases.find(|case| case.id == id))
    }

    /// The case in the first report that has it.
    pub(crate) fn any(&self) -> Option<&'a Case> {
        self.cases().flatten().next()
    }

    fn has_changed(&self) -> bool {
        let mut labels = self.cases().map(|case| case.map(Case::label));
        let first = labels.next();
        labels.any(|label| Some(label) != first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{format::Explanation, golden};

    /// The report of an upgrade that repaired one case, broke another one and lost a third.
    fn upgraded() -> Report {
        let mut report = golden::report();
        report.cluster.target = "upgraded".to_owned();
        let broken = &mut report.cases[0];
        broken.verdict = Verdict::Fail;
        broken.why = "1 of 2 axes: refused".to_owned();
        broken.explanation = Some(Explanation {
            expected: "Every connection to t-ext is answered by b01.".into(),
            happened: "From 30.4 s on, 201 of 203 connections to t-ext were refused.".into(),
            event: Some("One second before, t had been emptied.".into()),
            next: "Look.".into(),
        });
        let repaired = &mut report.cases[1];
        repaired.verdict = Verdict::Pass;
        repaired.why = String::new();
        report.cases.retain(|case| case.id != "release-name-lattice");
        report
    }

    fn compared() -> Comparison {
        let reports = [golden::report(), upgraded()];
        let named = ["old/report.yaml", "new/report.yaml"]
            .map(str::to_owned)
            .into_iter()
            .zip(reports);
        Comparison::of(named.collect())
    }

    #[test]
    fn what_ended_otherwise_or_is_in_one_report_only_has_changed() {
        let comparison = compared();
        let changed: Vec<&str> = comparison.changed().map(|row| row.id()).collect();
        let expected = [
            "release-prefix-empty-list",
            "stale-sock-legacy-multi",
            "release-name-lattice",
        ];
        assert_eq!(changed, expected);
        assert_eq!(comparison.sentence(), "3 of 7 cases ended differently");
        let same = Comparison::of(vec![
            ("a".into(), golden::report()),
            ("b".into(), golden::report()),
        ]);
        assert_eq!(same.changed().count(), 0);
        assert_eq!(same.sentence(), "7 cases ended alike in all reports");
        let labels: Vec<&str> = same.reports().iter().map(Compared::label).collect();
        assert_eq!(
            labels,
            ["mutant:stale-kept on lab, a", "mutant:stale-kept on lab, b"]
        );
    }

    #[test]
    fn the_text_is_golden() {
        insta::assert_snapshot!("comparison.txt", compared().text(false, 80));
    }

    #[test]
    fn all_claims_are_printed_if_asked_for() {
        let comparison = compared();
        let [some, all] = [false, true].map(|all| comparison.text(all, 80));
        let claim = "\n stale-no-reboot ";
        assert!(!some.contains(claim) && all.contains(claim), "{all}");
    }

    #[test]
    fn the_page_is_golden_and_needs_nothing_from_elsewhere() {
        let page = html::comparison(&compared());
        golden::needs_nothing_from_elsewhere(&page);
        insta::assert_snapshot!("comparison.html", golden::readable(&page));
    }
}
