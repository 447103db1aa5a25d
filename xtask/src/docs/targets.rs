//! The targets of `suites/targets` as a table.

use std::{fs, path::Path};

use anyhow::Context as _;
use serde_json::Value;

use super::page::{link, table};
use crate::tidy;

/// Folder of the targets.
const TARGETS: &str = "suites/targets";

/// A row for each target: what it is, where it runs, what it declares.
///
/// # Errors
/// A file can't be read, is no YAML, or does not begin with a comment that says what it is.
pub(super) fn list(root: &Path, document: &str) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    for path in tidy::files(&root.join(TARGETS))? {
        if path.extension().is_none_or(|end| end != "yaml") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let file = format!("{TARGETS}/{name}.yaml");
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {file}"))?;
        rows.push(
            row(&name, &link(document, &file), &text).with_context(|| format!("failed to list {file}"))?,
        );
    }
    Ok(table(
        &[
            "Target",
            "What it is",
            "In the lab",
            "On a cluster",
            "Features",
            "Known deviations",
        ],
        &rows,
    ))
}

fn row(name: &str, link: &str, text: &str) -> anyhow::Result<Vec<String>> {
    let target: Value = serde_saphyr::from_str(text)?;
    let count = |field: &str| target[field].as_array().map_or(0, Vec::len).to_string();
    let version = target.pointer("/cluster/version").and_then(Value::as_str);
    let cluster = match (target.get("cluster"), version) {
        (None, _) => "no",
        (Some(_), Some(version)) => version,
        (Some(_), None) => "yes",
    };
    Ok(vec![
        format!("[`{name}`]({link})"),
        what(text).context("expected it to begin with a comment that says what the target is, found none")?,
        if target.get("lab").is_some() { "yes" } else { "no" }.to_owned(),
        cluster.to_owned(),
        count("features"),
        count("deviations"),
    ])
}

/// The first sentence of the comment that a file begins with.
fn what(text: &str) -> Option<String> {
    let comment = text.lines().map_while(|line| line.strip_prefix('#'));
    let comment = comment.map(str::trim).take_while(|line| !line.is_empty());
    let comment = comment.collect::<Vec<_>>().join(" ");
    let sentence = comment
        .split_inclusive(". ")
        .next()?
        .trim()
        .trim_end_matches(['.', ':']);
    (!sentence.is_empty()).then(|| sentence.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_row_with_what_its_file_says() {
        let text = "# A proxy, in one\n# mode. More.\nfeatures: [a, b]\nlab: {program: x}\ncluster: {version: 1.2.3}\n";
        let expected = [
            "[`own`](own.yaml)",
            "A proxy, in one mode",
            "yes",
            "1.2.3",
            "2",
            "0",
        ];
        assert_eq!(row("own", "own.yaml", text).unwrap(), expected);
        let error = row("own", "own.yaml", "lab: {}\n").unwrap_err().to_string();
        assert!(error.contains("begin with a comment"), "{error}");
    }

    #[test]
    fn every_target_of_the_repository_has_a_row() {
        let text = list(&crate::steps::root(), "README.md").unwrap();
        for name in ["reference", "cilium", "kube-proxy-nftables"] {
            assert!(
                text.contains(&format!("[`{name}`](suites/targets/{name}.yaml)")),
                "{text}"
            );
        }
    }
}
