//! Claims by area, with the axes of each: one table for an area, a column for each family.

use maud::{Markup, html};

use super::{
    super::format::{Axis, Case, Report},
    frame::{mark_of, sentence, sign},
};

/// Families by which axes are put into columns: an axis begins with its family, if it has one.
const FAMILIES: [&str; 3] = ["IPv4", "IPv6", "dual-stack"];
/// The column of other axes.
const OTHERS: &str = "axes";

pub(super) fn render(report: &Report) -> Markup {
    let mut areas: Vec<(&str, Vec<&Case>)> = Vec::new();
    for case in &report.cases {
        match areas.iter_mut().find(|(area, _)| *area == case.area) {
            Some((_, cases)) => cases.push(case),
            None => areas.push((&case.area, vec![case])),
        }
    }
    html! {
        section aria-labelledby="claims" {
            h2 id="claims" { "Claims by area" }
            p class="soft small" {
                "One sign for each axis (a variant, a family, a group of clients), with its name as a tooltip: "
                span class="pass" { "✓ passed" } ", " span class="fail" { "✗ failed" } ", "
                span class="inconclusive" { "? inconclusive" } "."
            }
            @for (area, cases) in &areas { (table(area, cases)) }
        }
    }
}

fn table(area: &str, cases: &[&Case]) -> Markup {
    let is_used = |column: &&str| {
        cases
            .iter()
            .flat_map(|case| &case.axes)
            .any(|axis| column_of(axis) == *column)
    };
    let columns: Vec<&str> = FAMILIES
        .into_iter()
        .chain([OTHERS])
        .filter(|column| is_used(column))
        .collect();
    html! {
        div class="area" {
            h3 { (area) }
            table {
                thead {
                    tr {
                        th scope="col" { "claim" }
                        th scope="col" { "verdict" }
                        @for column in &columns { th scope="col" { (column) } }
                    }
                }
                tbody {
                    @for case in cases {
                        @for (claim, text) in &case.claims { (row(case, claim, text, &columns)) }
                    }
                }
            }
        }
    }
}

fn row(case: &Case, claim: &str, text: &str, columns: &[&str]) -> Markup {
    html! {
        tr data-words=(words(case)) {
            th scope="row" {
                a href={ "#" (case.id) } { (claim) }
                @if claim != case.id { span class="soft small" { " by " (case.id) } }
                span class="soft small sentence" { (sentence(text)) }
            }
            td { (mark_of(case)) }
            @for column in columns {
                @let axes: Vec<&Axis> = case.axes.iter().filter(|axis| column_of(axis) == *column).collect();
                td class="axes" data-column=(column) {
                    @for axis in axes {
                        span class=(axis.verdict.name()) title=(axis.name) { (sign(axis.verdict)) }
                    }
                }
            }
        }
    }
}

fn column_of(axis: &Axis) -> &'static str {
    let family = axis.name.split(',').next().unwrap_or_default();
    FAMILIES
        .into_iter()
        .find(|known| *known == family)
        .unwrap_or(OTHERS)
}

/// What the filter compares.
pub(super) fn words(case: &Case) -> String {
    let claims: Vec<&str> = case.claims.keys().map(String::as_str).collect();
    let columns: std::collections::BTreeSet<&str> = case.axes.iter().map(column_of).collect();
    let columns: Vec<&str> = columns.into_iter().filter(|column| *column != OTHERS).collect();
    format!(
        "{} {} {} {} {} {}",
        case.id,
        claims.join(" "),
        case.label(),
        case.area,
        case.tier,
        columns.join(" ")
    )
    .to_lowercase()
}
