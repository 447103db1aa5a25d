//! The files of a report: written whole or not at all, and read with every field looked at.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use super::{
    format::{Counts, FORMAT, Report},
    html, junit,
};

/// Name of the report that the others are made of.
pub(crate) const YAML: &str = "report.yaml";
/// Name of the report for people.
pub(crate) const HTML: &str = "report.html";
/// Name of the report for CI.
pub(crate) const JUNIT: &str = "junit.xml";

/// Writes all three into a folder, and returns their paths.
///
/// # Errors
/// One can't be written: the disk is full, say. Those that can be are.
pub(crate) fn write(report: &Report, folder: &Path) -> anyhow::Result<[PathBuf; 3]> {
    let files = [
        (YAML, yaml(report)),
        (HTML, Ok(html::render(report))),
        (JUNIT, junit::render(report)),
    ];
    let mut first_error = None;
    let paths = files.map(|(name, text)| {
        let path = folder.join(name);
        if let Err(error) = text.and_then(|text| put(&path, &text)) {
            first_error.get_or_insert(error);
        }
        path
    });
    first_error.map_or(Ok(paths), Err)
}

/// As YAML.
///
/// # Errors
/// None that is known: the format has nothing that YAML lacks.
pub(crate) fn yaml(report: &Report) -> anyhow::Result<String> {
    serde_saphyr::to_string(report).context("failed to write the report as YAML")
}

/// A file that is there is whole: a full disk leaves the one that was there before.
fn put(path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("failed to write {}", path.display());
    let folder = path.parent().unwrap_or(path);
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(file.path(), readable).with_context(failed)?;
    file.persist(path).with_context(failed)?;
    Ok(())
}

/// Reads and checks a report.
///
/// # Errors
/// The file can't be read, is none of this format, or contradicts itself.
pub(crate) fn read(path: &Path) -> anyhow::Result<Report> {
    let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is no report of the format {FORMAT}", path.display()))
}

fn parse(text: &str) -> anyhow::Result<Report> {
    let report: Report = serde_saphyr::from_str(text)?;
    if report.format != FORMAT {
        bail!("expected the format {FORMAT}, found {:?}", report.format);
    }
    let counted = Counts::of(&report.cases);
    if counted != report.counts {
        bail!(
            "its counts are not those of its cases: expected {counted:?}, found {:?}",
            report.counts
        );
    }
    let mut ids: Vec<&str> = report.cases.iter().map(|case| case.id.as_str()).collect();
    ids.sort_unstable();
    if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("the case {} is there twice", twice[0]);
    }
    for case in &report.cases {
        if case.why.is_empty() != (case.verdict == super::format::Verdict::Pass) {
            bail!(
                "the case {} is {} with the reason {:?}: a pass has none, everything else has",
                case.id,
                case.verdict.name(),
                case.why
            );
        }
    }
    Ok(report)
}
