//! Published reports (`suites/reports/IMPLEMENTATION/VERSION/PROVIDER/report.yaml`) as tables.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use serde::{Deserialize, de::IgnoredAny};

use super::{
    catalogue::{Area, Catalogue},
    claims,
    page::{NOTICE, Page, link, table},
};

/// Folder of the reports.
const REPORTS: &str = "suites/reports";
/// Nodes of a new lab or kind cluster without `--nodes`.
const DEFAULT_NODES: usize = 2;
/// The page with every case.
const PAGE: &str = "docs/claims/results.md";

/// All published reports.
pub(super) struct Results(Vec<Published>);

struct Published {
    implementation: String,
    version: String,
    path: String,
    report: Report,
}

/// What tables show of a report; `plumbline report validate` knows the rest.
#[derive(Deserialize)]
struct Report {
    cluster: Cluster,
    run: Run,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Cluster {
    provider: String,
    target: String,
    /// By their names.
    nodes: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
struct Run {
    seed: u64,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    verdict: String,
    #[serde(default)]
    exempt: Option<String>,
}

impl Case {
    /// As the program shows it: a case that is exempt is no pass.
    fn shown(&self) -> &str {
        match (&self.exempt, self.verdict.as_str()) {
            (Some(_), "pass" | "fail") => "exempt",
            (_, "not-supported") => "not supported",
            (_, verdict) => verdict,
        }
    }
}

impl Published {
    fn title(&self) -> String {
        format!(
            "{} {} ({})",
            self.implementation, self.version, self.report.cluster.provider
        )
    }

    /// The command that makes it again, up to what no seed decides.
    fn command(&self) -> String {
        let Cluster {
            provider,
            target,
            nodes,
        } = &self.report.cluster;
        let seed = self.report.run.seed;
        let nodes = match nodes.len() {
            DEFAULT_NODES => String::new(),
            other => format!(" --nodes {other}"),
        };
        let provider = match provider.as_str() {
            "lab" => String::new(),
            other => format!(" --provider {other}"),
        };
        format!("sudo plumbline run{provider} --target {target}{nodes} --seed {seed}")
    }

    fn verdict(&self, case: &str) -> Option<&str> {
        let case = self.report.cases.iter().find(|one| one.id == case)?;
        Some(case.shown())
    }
}

impl Results {
    /// Reads all published reports.
    ///
    /// # Errors
    /// A folder or a report can't be read, or is no report.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut all = Vec::new();
        for implementation in folders(&root.join(REPORTS))? {
            for version in folders(&root.join(REPORTS).join(&implementation))? {
                for provider in folders(&root.join(REPORTS).join(&implementation).join(&version))? {
                    let path = format!("{REPORTS}/{implementation}/{version}/{provider}/report.yaml");
                    if !root.join(&path).exists() {
                        continue;
                    }
                    let text = fs::read_to_string(root.join(&path))
                        .with_context(|| format!("failed to read {path}"))?;
                    let report = serde_saphyr::from_str(&text).with_context(|| {
                        format!("{path} is no report: `plumbline report validate {path}` says why")
                    })?;
                    all.push(Published {
                        implementation: implementation.clone(),
                        version: version.clone(),
                        path,
                        report,
                    });
                }
            }
        }
        Ok(Self(all))
    }

    /// By report and area: how many of the cases that ran were passed.
    pub(super) fn matrix(&self, catalogue: &Catalogue, document: &str) -> String {
        if self.0.is_empty() {
            return format!(
                "No report is published yet. This makes one, and [suites/reports]({}) has how to submit it:\n\n```sh\n\
                 sudo plumbline run --target reference --out output\n```\n",
                link(document, "suites/reports/README.md")
            );
        }
        let has_cases = |area: &Area<'_>| {
            let of_all = self.0.iter().flat_map(|published| &published.report.cases);
            of_all
                .into_iter()
                .any(|case| catalogue.area_of(&case.id) == Some(area.name))
        };
        let areas: Vec<Area<'_>> = catalogue.areas().into_iter().filter(has_cases).collect();
        let letters: Vec<String> = areas
            .iter()
            .map(|area| {
                format!(
                    "[{}]({})",
                    area.letter(),
                    link(document, &claims::area_path(area))
                )
            })
            .collect();
        let mut header = vec!["Report"];
        header.extend(letters.iter().map(String::as_str));
        header.push("made by");
        let row = |published: &Published| -> Vec<String> {
            let title = format!("[{}]({})", published.title(), link(document, &published.path));
            let of_area = |area: &Area<'_>| {
                let is_of_it = |case: &&Case| catalogue.area_of(&case.id) == Some(area.name);
                cell(published.report.cases.iter().filter(is_of_it))
            };
            let cells = areas.iter().map(of_area);
            let command = format!("`{}`", published.command());
            [title].into_iter().chain(cells).chain([command]).collect()
        };
        let rows: Vec<Vec<String>> = self.0.iter().map(row).collect();
        let mut text = table(&header, &rows);
        let _ = writeln!(
            text,
            "\nPassed, of the cases that the implementation claims and the cluster could run, by area; [every case]({}).",
            link(document, PAGE)
        );
        text
    }

    /// The page with every case.
    pub(super) fn page(&self, catalogue: &Catalogue) -> Page {
        let mut text = format!("{NOTICE}# Results\n\n{}", self.matrix(catalogue, PAGE));
        if !self.0.is_empty() {
            text += "\n## Every case\n\n";
            let titles: Vec<String> = self.0.iter().map(Published::title).collect();
            let mut header = vec!["Case"];
            header.extend(titles.iter().map(String::as_str));
            let rows: Vec<Vec<String>> = catalogue
                .cases()
                .iter()
                .map(|case| {
                    let verdicts = self
                        .0
                        .iter()
                        .map(|published| published.verdict(&case.id).unwrap_or("—"));
                    let name = format!("`{}`", case.id);
                    [name].into_iter().chain(verdicts.map(str::to_owned)).collect()
                })
                .collect();
            text += &table(&header, &rows);
        }
        Page {
            path: PAGE.to_owned(),
            text,
        }
    }
}

/// `13/15`, and what else there is; nothing, if there is no case.
fn cell<'a>(cases: impl Iterator<Item = &'a Case>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for case in cases {
        *counts.entry(case.shown()).or_default() += 1;
    }
    let of = |verdict: &str| counts.get(verdict).copied().unwrap_or_default();
    let ran: usize = ["pass", "fail", "inconclusive", "exempt"].map(of).iter().sum();
    let left_out = counts.keys().next();
    match (ran, left_out) {
        (0, None) => String::new(),
        (0, Some(verdict)) => (*verdict).to_owned(),
        (ran, _) => {
            let mut text = format!("{}/{ran}", of("pass"));
            for verdict in ["fail", "inconclusive", "exempt"] {
                if of(verdict) > 0 {
                    let _ = write!(text, ", {} {verdict}", of(verdict));
                }
            }
            text
        }
    }
}

/// Names of the folders in a folder, sorted, without that of the schema.
fn folders(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.path().is_dir() && entry.file_name() != "schema" {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::catalogue, *};

    fn results(root: &Path, report: &str) -> anyhow::Result<Results> {
        let folder = root.join(REPORTS).join("own/1.2/kind");
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(root.join(REPORTS).join("schema")).unwrap();
        fs::write(folder.join("report.yaml"), report).unwrap();
        Results::read(root)
    }

    #[test]
    fn without_a_report_the_command_is_shown_that_makes_one() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(REPORTS)).unwrap();
        let results = Results::read(root.path()).unwrap();
        let text = results.matrix(&catalogue(), "README.md");
        assert!(
            text.contains("plumbline run --target reference") && !text.contains('|'),
            "{text}"
        );
        assert!(results.page(&catalogue()).text.contains("# Results"));
    }

    #[test]
    fn a_report_is_a_row_with_what_passed_of_what_ran_by_area() {
        let root = tempfile::tempdir().unwrap();
        let report = "cluster: {provider: kind, target: ./own.yaml, nodes: {a: [], b: [], c: []}}\nrun: {seed: 7, profile: cluster}\ncases:\n\
                      - {id: first, verdict: pass}\n- {id: second, verdict: fail, exempt: why}\n\
                      - {id: third, verdict: not-supported}\n";
        let results = results(root.path(), report).unwrap();
        let text = results.matrix(&catalogue(), "README.md");
        let [header, _, row, ..] = text.lines().collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        assert_eq!(
            header,
            "| Report | [A](docs/claims/area-a.md) | [B](docs/claims/area-b.md) | made by |"
        );
        assert_eq!(
            row,
            "| [own 1.2 (kind)](suites/reports/own/1.2/kind/report.yaml) | 1/2, 1 exempt | not supported | \
             `sudo plumbline run --provider kind --target ./own.yaml --nodes 3 --seed 7` |"
        );
        let page = results.page(&catalogue()).text;
        assert!(
            page.contains("| `second` | exempt |") && page.contains("| `fourth` | — |"),
            "{page}"
        );
    }

    #[test]
    fn what_is_no_report_is_named() {
        let root = tempfile::tempdir().unwrap();
        let error = results(root.path(), "cases: none\n").err().unwrap().to_string();
        assert!(
            error.contains("suites/reports/own/1.2/kind/report.yaml is no report"),
            "{error}"
        );
    }
}
