//! The mutants, from `plumbline-mutant list --json`.

use std::{collections::BTreeSet, process::Command};

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::Mutant;
use crate::steps;

/// All of them.
pub(super) fn list() -> anyhow::Result<Vec<Mutant>> {
    let program = steps::programs()?.join("plumbline-mutant");
    let output = Command::new(&program)
        .args(["list", "--json"])
        .output()
        .context("failed to start plumbline-mutant")?;
    let listed: Vec<Value> =
        serde_json::from_slice(&output.stdout).context("plumbline-mutant list printed no JSON")?;
    listed
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
            Ok(Mutant {
                name: name.to_owned(),
                caught_by,
                passed_by,
                through: through.filter_map(run).collect(),
            })
        })
        .collect()
}
