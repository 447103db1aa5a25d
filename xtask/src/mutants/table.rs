//! Tables of the results.

use std::{collections::BTreeSet, iter};

use comfy_table::{Table, presets::NOTHING};

use super::{Mutant, Outcomes, UNMUTATED};

/// A row for each mutant and each of its cases.
pub(super) fn rows(baseline: &Outcomes, mutants: &[(&Mutant, Outcomes)]) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_header(["MUTANT", "CASE", "VERDICT", "UNMUTATED"]);
    for (mutant, outcomes) in mutants {
        for (case, outcome) in outcomes {
            table.add_row([&*mutant.name, case, &outcome.verdict, verdict(baseline, case)]);
        }
    }
    format!("\n{}\n\n", table.trim_fmt())
}

/// A row for each case that ran on some mutant, a column for each agent.
pub(super) fn matrix(baseline: &Outcomes, mutants: &[(&Mutant, Outcomes)]) -> String {
    let tried: BTreeSet<&String> = mutants.iter().flat_map(|(_, outcomes)| outcomes.keys()).collect();
    let names = iter::once(UNMUTATED).chain(mutants.iter().map(|(mutant, _)| &*mutant.name));
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(iter::once("").chain(names));
    for case in tried {
        let all = iter::once(baseline).chain(mutants.iter().map(|(_, outcomes)| outcomes));
        table.add_row(iter::once(case.as_str()).chain(all.map(|outcomes| verdict(outcomes, case))));
    }
    format!("\n{}\n\n", table.trim_fmt())
}

/// `-` for a case that did not run.
fn verdict<'a>(outcomes: &'a Outcomes, case: &str) -> &'a str {
    outcomes.get(case).map_or("-", |outcome| &outcome.verdict)
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{mutant, outcomes},
        *,
    };

    #[test]
    fn the_matrix_shows_every_case_against_every_agent() {
        let text = matrix(
            &outcomes(&[("a", "pass"), ("untried", "pass")]),
            &[
                (&mutant("m", &[]), outcomes(&[("a", "fail")])),
                (&mutant("n", &[]), outcomes(&[])),
            ],
        );
        assert!(!text.contains("untried"));
        let row = text
            .lines()
            .find(|line| line.trim_start().starts_with("a "))
            .unwrap();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            ["a", "pass", "fail", "-"]
        );
    }
}
