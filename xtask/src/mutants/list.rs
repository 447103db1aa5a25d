//! The mutants, from `plumbline-mutant list --json`, and what their cases need, from `plumbline list --json`.

use std::{collections::BTreeSet, process::Command};

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::Mutant;
use crate::steps;

/// All of them.
pub(super) fn list() -> anyhow::Result<Vec<Mutant>> {
    let cases = listed("plumbline")?;
    let of_both_families: BTreeSet<&str> = cases
        .iter()
        .filter(|case| case["needs"]["families"] == "dual-stack")
        .filter_map(|case| case["id"].as_str())
        .collect();
    listed("plumbline-mutant")?
        .iter()
        .map(|one| {
            let name = one["name"].as_str().context("a mutant without a name")?;
            let cases = |key: &str| -> BTreeSet<String> {
                let cases = one[key].as_array().into_iter().flatten();
                cases.filter_map(Value::as_str).map(str::to_owned).collect()
            };
            let (caught_by, passed_by) = (cases("caught_by"), cases("passed_by"));
            if caught_by.is_empty() && passed_by.is_empty() {
                bail!("the mutant {name} names no case that must fail on it, nor one that must pass");
            }
            let through = one["through"].as_object().into_iter().flatten();
            let run = |(row, case): (&String, &Value)| Some((row.clone(), case.as_str()?.to_owned()));
            let named = caught_by.union(&passed_by);
            let of_both = named.filter(|case| of_both_families.contains(case.as_str()));
            Ok(Mutant {
                name: name.to_owned(),
                of_both_families: of_both.cloned().collect(),
                caught_by,
                passed_by,
                has_control: one["has_control"]
                    .as_bool()
                    .context("has_control is not stated")?,
                through: through.filter_map(run).collect(),
            })
        })
        .collect()
}

/// What `list --json` of a built program prints.
fn listed(program: &str) -> anyhow::Result<Vec<Value>> {
    let output = Command::new(steps::programs()?.join(program))
        .args(["list", "--json"])
        .output()
        .with_context(|| format!("failed to start {program}"))?;
    serde_json::from_slice(&output.stdout).with_context(|| format!("{program} list printed no JSON"))
}
