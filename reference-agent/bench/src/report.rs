//! What was measured, as a table for people and as CSV for programs.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// What was done.
    pub(crate) scenario: String,
    /// Which part of it.
    pub(crate) part: String,
    /// How much, or how long.
    pub(crate) value: f64,
    /// Of what.
    pub(crate) unit: String,
    /// What it should not be above; `None`: no aim is set.
    pub(crate) aim: Option<f64>,
}

/// Rows of one scenario.
pub(crate) struct Rows {
    scenario: String,
    pub(crate) rows: Vec<Row>,
}

impl Rows {
    pub(crate) fn of(scenario: impl Into<String>) -> Self {
        Self {
            scenario: scenario.into(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, part: &str, value: f64, unit: &str) {
        self.add_with_aim(part, value, unit, None);
    }

    pub(crate) fn add_with_aim(&mut self, part: &str, value: f64, unit: &str, aim: Option<f64>) {
        self.rows.push(Row {
            scenario: self.scenario.clone(),
            part: part.to_owned(),
            value,
            unit: unit.to_owned(),
            aim,
        });
    }
}

/// All rows.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["scenario", "part", "figure", "unit", "aim"]);
    if let Some(column) = table.column_mut(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut before = "";
    for row in rows {
        let scenario = if before == row.scenario { "" } else { &row.scenario };
        before = &row.scenario;
        let aim = row.aim.map_or_else(String::new, |aim| {
            format!("≤ {aim}{}", if row.value <= aim { "" } else { ", missed" })
        });
        table.add_row([
            scenario.to_owned(),
            row.part.clone(),
            format!("{:.3}", row.value),
            row.unit.clone(),
            aim,
        ]);
    }
    format!("What the agent costs\n{table}\n")
}

/// All rows as CSV.
pub(crate) fn csv(rows: &[Row]) -> String {
    let mut text = "scenario,part,value,unit,aim\n".to_owned();
    for row in rows {
        let aim = row.aim.map_or_else(String::new, |aim| aim.to_string());
        let [scenario, part] =
            [&row.scenario, &row.part].map(|text| format!("\"{}\"", text.replace('"', "\"\"")));
        let _ = writeln!(text, "{scenario},{part},{},{},{aim}", row.value, row.unit);
    }
    text
}

/// Writes a file of the folder, and says so.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    println!("written: {}", path.display());
    Ok(())
}

/// The one that this many of a thousand are not above; 0 of none.
pub(crate) fn percentile(sorted: &[f64], of_thousand: usize) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * of_thousand / 1000).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_numbers_that_were_measured() {
        let sorted: Vec<f64> = (0..=1000).map(f64::from).collect();
        for of_thousand in [0, 500, 990, 1000] {
            assert_eq!(percentile(&sorted, of_thousand), of_thousand as f64);
        }
        assert_eq!(percentile(&[], 500), 0.0);
    }

    #[test]
    fn a_figure_above_its_aim_is_said_to_have_missed_it() {
        let mut rows = Rows::of("cold, \"many\"");
        rows.add_with_aim("all", 0.7, "s", Some(0.5));
        rows.add("writing", 0.1, "s");
        assert!(table(&rows.rows).contains("≤ 0.5, missed"));
        assert_eq!(
            csv(&rows.rows),
            "scenario,part,value,unit,aim\n\"cold, \"\"many\"\"\",\"all\",0.7,s,0.5\n\"cold, \"\"many\"\"\",\"writing\",0.1,s,\n"
        );
    }
}
