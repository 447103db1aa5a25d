//! The files of a report: written whole or not at all, and read with every field looked at.

use std::{
    fs,
    io::{self, Write as _},
    path::{Component, Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use cluster::user_file::{self, UserFileError};

use super::{
    format::{Counts, FORMAT, Report},
    html, junit,
};

/// Most nodes (scalars, lists, maps) of a report: 200 cases of 50 axes that all failed, with 10 findings of 12 nodes each.
const NODES: usize = 1_200_000;

/// Most bytes of a report or a timeline. The YAML parser takes 64 MiB of text; indentation and punctuation are no more than that.
const MOST_BYTES: u64 = 128 * 1024 * 1024;

/// What every version of the format begins with; its number follows.
const FAMILY: &str = "plumbline.report/v";

/// Name of the report that the others are made of.
pub(crate) const YAML: &str = "report.yaml";
/// Name of the report for people.
pub(crate) const HTML: &str = "report.html";
/// Name of the report for CI.
pub(crate) const JUNIT: &str = "junit.xml";

/// Name of a timeline in the evidence of its case.
const TIMELINE: &str = "timeline.yaml";

/// Writes all three into a folder, and timelines beside the evidence there; returns the paths of the three.
///
/// # Errors
/// One can't be written: the disk is full, say. Those that can be are.
pub(crate) fn write(report: &Report, folder: &Path) -> anyhow::Result<[PathBuf; 3]> {
    let files = [
        (YAML, yaml(report)),
        (HTML, Ok(html::render(report))),
        (JUNIT, junit::render(report)),
    ];
    let mut first_error = write_timelines(report, folder).err();
    let paths = files.map(|(name, text)| {
        let path = folder.join(name);
        if let Err(error) = text.and_then(|text| put(&path, &text)) {
            first_error.get_or_insert(error);
        }
        path
    });
    first_error.map_or(Ok(paths), Err)
}

fn write_timelines(report: &Report, folder: &Path) -> anyhow::Result<()> {
    for case in &report.cases {
        if let (Some(timeline), Some(evidence)) = (&case.timeline, &case.evidence) {
            let text = serde_saphyr::to_string(timeline).context("failed to write a timeline as YAML")?;
            put(&folder.join(evidence).join(TIMELINE), &text)?;
        }
    }
    Ok(())
}

/// Reads timelines from the evidence that lies beside a report; a report that stands alone has none.
///
/// # Errors
/// One can't be read, or is none.
pub(crate) fn read_timelines(report: &mut Report, folder: &Path) -> anyhow::Result<()> {
    for case in &mut report.cases {
        let Some(evidence) = &case.evidence else { continue };
        let path = folder.join(evidence).join(TIMELINE);
        let text = match user_file::read(&path, MOST_BYTES) {
            Err(UserFileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => continue,
            text => text.map_err(|error| {
                anyhow!(
                    "failed to read {}: {error}; remove it to see the report without it",
                    path.display()
                )
            })?,
        };
        let timeline = serde_saphyr::from_str_with_options(&text, options());
        case.timeline = Some(timeline.with_context(|| format!("{} is no timeline", path.display()))?);
    }
    Ok(())
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: NODES, max_events: 2 * NODES },
    }
}

/// As YAML.
///
/// # Errors
/// None that is known: the format has nothing that YAML lacks.
pub(crate) fn yaml(report: &Report) -> anyhow::Result<String> {
    let yaml = serde_saphyr::to_string(report).context("failed to write the report as YAML")?;
    Ok(match report.no_conformance() {
        Some(words) => format!("# {words}\n{yaml}"),
        None => yaml,
    })
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
    let text = user_file::read(path, MOST_BYTES).map_err(|error| {
        anyhow!(
            "failed to read {}: {error}; name the report.yaml of a run",
            path.display()
        )
    })?;
    parse(&text).with_context(|| format!("{} is no report of the format {FORMAT}", path.display()))
}

/// As [`read`], of the text.
pub(super) fn parse(text: &str) -> anyhow::Result<Report> {
    let report: Report = serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        // A field that another version has is no slip of the pen: the version says more.
        format_of(text)
            .and_then(|format| other_format(&format))
            .unwrap_or_else(|| error.into())
    })?;
    if let Some(other) = other_format(&report.format) {
        return Err(other);
    }
    let counted = Counts::of(&report.cases);
    if counted != report.counts {
        bail!(
            "its counts are not those of its cases: expected {counted}, found {}",
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
    for case in &report.cases {
        let earlier = case.undecided.iter().filter_map(|one| one.evidence.as_ref());
        for evidence in case.evidence.iter().chain(earlier) {
            let is_plain = |part| matches!(part, Component::Normal(_));
            if !Path::new(evidence).components().all(is_plain) {
                bail!(
                    "the evidence of the case {} is at {evidence:?}: expected a path relative to the report's folder, within it",
                    case.id
                );
            }
        }
    }
    Ok(report)
}

/// What the line about the format says, wherever it stands.
fn format_of(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("format:"))?;
    Some(line.trim().trim_matches(['"', '\'']).to_owned())
}

/// What to do about a report of another format; nothing, if it is this one.
fn other_format(found: &str) -> Option<anyhow::Error> {
    if found == FORMAT {
        return None;
    }
    let number = |format: &str| format.strip_prefix(FAMILY)?.parse::<u32>().ok();
    Some(match (number(found), number(FORMAT)) {
        (Some(theirs), Some(ours)) if theirs > ours => {
            anyhow!(
                "it has the format {found}, which is newer than {FORMAT}: use the plumbline that wrote it, or a later one"
            )
        }
        (Some(_), _) => {
            anyhow!(
                "it has the format {found}, which is older than {FORMAT}: use the plumbline that wrote it"
            )
        }
        _ => anyhow!("expected the format {FORMAT}, found {found:?}"),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::report::golden;

    #[test]
    fn a_device_is_no_report_and_no_timeline() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = golden::report();
        let evidence = report
            .cases
            .iter()
            .find_map(|case| case.evidence.clone())
            .unwrap();
        let evidence = folder.path().join(evidence);
        fs::create_dir_all(&evidence).unwrap();
        symlink("/dev/null", evidence.join(TIMELINE)).unwrap();
        let error = format!("{:#}", read_timelines(&mut report, folder.path()).unwrap_err());
        let part = "timeline.yaml: expected a regular file or a pipe, found a character device";
        assert!(error.contains(part), "{error}");
        let error = format!("{:#}", read(Path::new("/dev/zero")).unwrap_err());
        assert_eq!(
            error,
            "failed to read /dev/zero: expected a regular file or a pipe, found a character device; name the report.yaml of a run"
        );
    }
}
