//! The files of a report: writes are atomic, and unknown fields are refused.

use std::{
    fs,
    io::{self, Write as _},
    path::{Component, Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use cluster::user_file::{self, UserFileError};

use super::{
    format::{Counts, FORMAT, Report},
    html, junit, timeline,
};

/// Limit of YAML nodes (scalars, lists, maps) in a report: 200 cases of 50 axes that all failed, with 10 findings of 12
/// nodes each.
const NODES: usize = 1_200_000;

/// Limit of bytes of a report or a timeline. The YAML parser accepts 64 MiB of text; indentation and punctuation add no
/// more than that.
const MOST_BYTES: u64 = 128 * 1024 * 1024;

/// Prefix of every version of the format; the version number follows.
const FAMILY: &str = "plumbline.report/v";

/// Name of the report from which the others are made.
pub(crate) const YAML: &str = "report.yaml";
/// Name of the HTML report.
pub(crate) const HTML: &str = "report.html";
/// Name of the JUnit report.
pub(crate) const JUNIT: &str = "junit.xml";

/// Writes all three to a folder, and timelines to the evidence there; returns the paths of the three.
///
/// # Errors
/// One can't be written, for example because the disk is full. The others are still written.
pub(crate) fn write(report: &Report, folder: &Path) -> anyhow::Result<[PathBuf; 3]> {
    let mut first_error = write_timelines(report, folder).err();
    let files = [
        (YAML, yaml(report)),
        (HTML, Ok(html::render(report))),
        // It attaches timelines, so they are there by now.
        (JUNIT, junit::render(report, folder)),
    ];
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
            put(&folder.join(evidence).join(timeline::FILE), &text)?;
        }
    }
    Ok(())
}

/// Reads timelines from the evidence beside a report; a report without evidence has none.
///
/// # Errors
/// A timeline can't be read, or is invalid.
pub(crate) fn read_timelines(report: &mut Report, folder: &Path) -> anyhow::Result<()> {
    for case in &mut report.cases {
        let Some(evidence) = &case.evidence else { continue };
        let path = folder.join(evidence).join(timeline::FILE);
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

/// The report as YAML.
///
/// # Errors
/// None is known: YAML can express the whole format.
pub(crate) fn yaml(report: &Report) -> anyhow::Result<String> {
    let yaml = serde_saphyr::to_string(report).context("failed to write the report as YAML")?;
    Ok(match report.no_conformance() {
        Some(words) => format!("# {words}\n{yaml}"),
        None => yaml,
    })
}

/// Writes atomically: if the disk is full, the old file stays.
pub(super) fn put(path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("failed to write {}", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
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
/// The file can't be read, has another format, or contradicts itself.
pub(crate) fn read(path: &Path) -> anyhow::Result<Report> {
    let text = user_file::read(path, MOST_BYTES).map_err(|error| {
        anyhow!(
            "failed to read {}: {error}; name the report.yaml of a run",
            path.display()
        )
    })?;
    parse(&text).with_context(|| format!("{} is no report of the format {FORMAT}", path.display()))
}

/// Parses the text as [`read`] does.
pub(crate) fn parse(text: &str) -> anyhow::Result<Report> {
    let report: Report = serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        // Another version explains an unknown field better than a typing error does.
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
                "the case {} is {} with the reason '{}': a pass has none, everything else has",
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
                    "the evidence of the case {} is at '{evidence}': expected a path relative to the report's folder, within it",
                    case.id
                );
            }
        }
    }
    Ok(report)
}

/// Value of the line with the format, wherever it stands.
fn format_of(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("format:"))?;
    Some(line.trim().trim_matches(['"', '\'']).to_owned())
}

/// What to do about a report of another format; `None` for the current one.
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
        _ => anyhow!("expected the format {FORMAT}, found '{found}'"),
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
        symlink("/dev/null", evidence.join(timeline::FILE)).unwrap();
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
