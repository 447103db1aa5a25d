//! How many schedules of chaos it takes to find each mutant in labs.

use std::{
    fs::{self, File},
    process::{ExitCode, Stdio},
    str::FromStr,
};

use anyhow::Context as _;
use comfy_table::{Table, presets::NOTHING};

use super::{Mutant, OUT, outcome, side_by_side};
use crate::{job, steps};

/// Seeds, from the first to the one before the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seeds {
    from: u64,
    to: u64,
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (from, to) = text.split_once("..").unwrap_or_default();
        match (from.parse(), to.parse()) {
            (Ok(from), Ok(to)) if from < to => Ok(Self { from, to }),
            _ => Err("expected seeds, without the last, such as 1..21".to_owned()),
        }
    }
}

/// What the schedules have shown of a mutant.
#[derive(Debug, PartialEq, Eq)]
enum Search {
    /// The first seed on which it fails.
    Found(u64),
    /// It fails on none; so many decided nothing.
    NotFound { unknown: u64 },
}

/// Plays the schedules on each mutant with a bug, in turn until one fails, several mutants at once, and prints a table.
/// Returns 0 if all were found, 1 if not, 2 if something could not be played.
pub(super) fn search(mutants: &[Mutant], seeds: Seeds, lasts: &str, jobs: usize) -> ExitCode {
    let with_bug: Vec<&Mutant> = mutants
        .iter()
        .filter(|mutant| !mutant.caught_by.is_empty())
        .collect();
    let mut results = Vec::new();
    let mut not_played = Vec::new();
    for (mutant, search) in side_by_side(&with_bug, jobs, |mutant| of_mutant(&mutant.name, seeds, lasts)) {
        match search {
            Ok(search) => results.push((&*mutant.name, search)),
            Err(error) => not_played.push((&mutant.name, error)),
        }
    }
    results.sort_unstable_by_key(|(name, _)| *name);
    print!("{}", shown(&results, seeds));
    for (name, error) in &not_played {
        println!("{name} has shown nothing: {error:#}");
    }
    let is_found = |(_, search): &(&str, Search)| matches!(search, Search::Found(_));
    match (not_played.is_empty(), results.iter().all(is_found)) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(1),
        (false, _) => ExitCode::from(2),
    }
}

fn of_mutant(name: &str, seeds: Seeds, lasts: &str) -> anyhow::Result<Search> {
    let mut unknown = 0;
    for seed in seeds.from..seeds.to {
        let verdict = play(name, seed, lasts)?;
        eprintln!("  <== {name}, seed {seed}: {verdict}");
        if verdict.starts_with("fail") {
            return Ok(Search::Found(seed));
        }
        unknown += u64::from(verdict != "pass");
    }
    Ok(Search::NotFound { unknown })
}

/// Plays one schedule; returns its verdict.
fn play(name: &str, seed: u64, lasts: &str) -> anyhow::Result<String> {
    let out = format!("{OUT}/chaos/{name}/{seed}");
    let folder = steps::root().join(&out);
    fs::create_dir_all(&folder).with_context(|| format!("failed to make {}", folder.display()))?;
    let log = folder.join("output.log");
    let file = File::create(&log).with_context(|| format!("failed to write {}", log.display()))?;
    let report = folder.join("report.yaml");
    // One of an earlier run is no result of this one.
    let _ = fs::remove_file(&report);
    let program = steps::programs()?.join("plumbline");
    let mut command = steps::as_root(&program, "making the lab")?;
    command
        .args([
            "chaos",
            "run",
            "--provider",
            "lab",
            "--for",
            lasts,
            "--mutant",
            name,
            "--seed",
        ])
        .arg(seed.to_string())
        .args(["--out", &out])
        .current_dir(steps::root());
    let status = job::bound(command)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .context("failed to start plumbline")?;
    let played = || {
        format!(
            "seed {seed} could not be played on {name} ({status}); {} says why",
            log.display()
        )
    };
    let outcomes = outcome::outcomes(&report).with_context(played)?;
    // One case, and the row that is watched in every run, which may be what fails.
    let failed = outcomes
        .values()
        .find(|outcome| outcome.verdict.starts_with("fail"));
    let other = || outcomes.values().find(|outcome| outcome.verdict != "pass");
    Ok(failed
        .or_else(other)
        .map_or("pass", |outcome| &*outcome.verdict)
        .to_owned())
}

/// The table, and the median of seeds that it took, where those that were not found took more than there are.
fn shown(results: &[(&str, Search)], seeds: Seeds) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_header(["MUTANT", "FOUND BY SEED", "SEEDS"]);
    let mut took: Vec<Option<u64>> = Vec::new();
    for (name, search) in results {
        let (found, tried) = match search {
            Search::Found(seed) => {
                took.push(Some(seed - seeds.from + 1));
                (seed.to_string(), (seed - seeds.from + 1).to_string())
            }
            Search::NotFound { unknown } => {
                took.push(None);
                let all = seeds.to - seeds.from;
                let undecided = if *unknown == 0 {
                    String::new()
                } else {
                    format!(", {unknown} of which decided nothing")
                };
                ("-".to_owned(), format!("{all}{undecided}"))
            }
        };
        table.add_row([name, &*found, &*tried]);
    }
    let found = took.iter().flatten().count();
    took.sort_unstable_by_key(|took| took.unwrap_or(u64::MAX));
    let median = match took.get(took.len().saturating_sub(1) / 2) {
        Some(Some(1)) => "half of them by the first seed".to_owned(),
        Some(Some(seeds)) => format!("half of them within {seeds} seeds"),
        Some(None) => "fewer than half of them".to_owned(),
        None => "nothing was played".to_owned(),
    };
    format!(
        "\n{}\n\n{} mutants, {found} found; {median}\n",
        table.trim_fmt(),
        results.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_without_its_end() {
        assert_eq!("1..21".parse(), Ok(Seeds { from: 1, to: 21 }));
        for wrong in ["", "7", "3..3", "3..2", "a..b", "1..=3"] {
            assert!(wrong.parse::<Seeds>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_median_counts_those_that_were_not_found() {
        let seeds = Seeds { from: 5, to: 8 };
        let none = || Search::NotFound { unknown: 0 };
        let results = [
            ("a", Search::Found(5)),
            ("b", Search::Found(7)),
            ("c", Search::NotFound { unknown: 2 }),
        ];
        let expected = "
 MUTANT  FOUND BY SEED  SEEDS
 a       5              1
 b       7              3
 c       -              3, 2 of which decided nothing

3 mutants, 2 found; half of them within 3 seeds
";
        let lines = shown(&results, seeds);
        let lines: Vec<&str> = lines.lines().map(str::trim_end).collect();
        assert_eq!(lines, expected.lines().collect::<Vec<_>>());
        let rare = [("a", Search::Found(5)), ("b", none()), ("c", none())];
        assert!(shown(&rare, seeds).ends_with("3 mutants, 1 found; fewer than half of them\n"));
        assert!(shown(&[], seeds).ends_with("0 mutants, 0 found; nothing was played\n"));
    }
}
