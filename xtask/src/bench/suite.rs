//! `cargo xtask bench e2e`: where the time of a run of the suite goes.

use std::{fs, process::ExitCode};

use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde_json::Value;

use crate::{e2e, steps};

/// Folder of the reports, below the workspace.
const OUT: &str = "target/plumbline/bench/e2e";
/// File that `plumbline run` writes beside its reports (`suites/cli/src/run/usage.rs`).
const SPENT: &str = "spent.json";
/// Activities of cases, a column each.
const ACTIVITIES: [&str; 7] = [
    "staging", "control", "fence", "judging", "hold", "healing", "closing",
];

/// Builds, runs the suite, and prints the tables.
pub(super) fn bench(run: &[String]) -> anyhow::Result<ExitCode> {
    e2e::build(&e2e::PROGRAMS)?;
    let program = steps::programs()?.join("plumbline");
    let mut command = steps::as_root(&program, "making the cluster")?;
    command
        .current_dir(steps::root())
        .args(["run", "--out", OUT])
        .args(run);
    let path = steps::root().join(OUT).join(SPENT);
    // Removes the file of an earlier run.
    let _ = fs::remove_file(&path);
    // Failed cases have used time, too.
    steps::run("suite", &mut command)?;
    let text = fs::read(&path).with_context(|| format!("the run wrote no {}", path.display()))?;
    let spent =
        serde_json::from_slice(&text).with_context(|| format!("failed to read {}", path.display()))?;
    print!("{}", tables(&spent));
    Ok(ExitCode::SUCCESS)
}

/// Tables by case, by program, and of the machine.
fn tables(spent: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let mut cases: Vec<(&String, &Value)> = spent["cases"].as_object().into_iter().flatten().collect();
    cases.sort_by(|one, other| number(&other.1["took_seconds"]).total_cmp(&number(&one.1["took_seconds"])));
    let mut by_case = table(&[&["CASE", "TOOK"], &ACTIVITIES[..], &["PROCESSOR"]].concat());
    let mut sums = vec![0.0; ACTIVITIES.len() + 2];
    for (case, of_case) in cases {
        let activities = ACTIVITIES.map(|activity| number(&of_case["seconds"][activity]));
        let seconds = [number(&of_case["took_seconds"])]
            .into_iter()
            .chain(activities)
            .chain([number(&of_case["processor_seconds"])]);
        let seconds: Vec<f64> = seconds.collect();
        for (sum, seconds) in sums.iter_mut().zip(&seconds) {
            *sum += seconds;
        }
        by_case.add_row([case.clone()].into_iter().chain(seconds.into_iter().map(shown)));
    }
    let of_cases = sums.last().copied().unwrap_or_default();
    by_case.add_row(["all".to_owned()].into_iter().chain(sums.into_iter().map(shown)));

    let labs = &spent["labs"];
    let mut by_program = table(&["PROGRAM", "PROCESSOR"]);
    for (program, seconds) in labs["programs"].as_object().into_iter().flatten() {
        by_program.add_row([program.clone(), shown(number(seconds))]);
    }
    by_program.add_row(["cases".to_owned(), shown(of_cases)]);

    let (busy, idle) = (number(&spent["busy_seconds"]), number(&spent["idle_seconds"]));
    let whole = (busy + idle).max(f64::MIN_POSITIVE);
    format!(
        "\nseconds; activities that go on at once count by themselves\n\n{}\n\n{}\n\n\
         {} labs took {} s to come up and {} s to go down, added up\n\
         the run took {} s on {} processors: {} s busy, with whatever else ran, and {} s idle ({:.0} %)\n",
        by_case.trim_fmt(),
        by_program.trim_fmt(),
        labs["made"],
        shown(number(&labs["up_seconds"])),
        shown(number(&labs["down_seconds"])),
        shown(number(&spent["took_seconds"])),
        spent["processors"],
        shown(busy),
        shown(idle),
        idle / whole * 100.0
    )
}

/// A table with right-aligned numbers.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn shown(seconds: f64) -> String {
    format!("{seconds:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_longest_comes_first_and_all_adds_up() {
        let case = |took: f64| serde_json::json!({ "took_seconds": took, "seconds": { "hold": 30.0 }, "processor_seconds": 0.5 });
        let text = tables(&serde_json::json!({
            "took_seconds": 60.0, "processors": 2, "busy_seconds": 30.0, "idle_seconds": 90.0,
            "labs": { "made": 2, "up_seconds": 1.0, "down_seconds": 0.5, "programs": { "agents": 2.0 } },
            "cases": { "short": case(31.0), "long": case(40.0) },
        }));
        let row = |name: &str| {
            text.lines()
                .position(|line| line.trim_start().starts_with(name))
                .unwrap()
        };
        assert!(row("long") < row("short"));
        let words = |name: &str| {
            text.lines()
                .nth(row(name))
                .unwrap()
                .split_whitespace()
                .collect::<Vec<_>>()
        };
        assert_eq!(
            words("all"),
            [
                "all", "71.0", "0.0", "0.0", "0.0", "0.0", "60.0", "0.0", "0.0", "1.0"
            ]
        );
        assert_eq!(
            (words("agents"), words("cases")),
            (vec!["agents", "2.0"], vec!["cases", "1.0"])
        );
        assert!(text.contains("90.0 s idle (75 %)"), "{text}");
    }
}
