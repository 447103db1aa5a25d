//! The page of several reports side by side.

use maud::{Markup, html};

use super::{
    super::compare::{Compared, Comparison, Row, said, what_broke},
    detail::Detail,
    frame::{day, mark_of, page, sentence},
    matrix, timeline,
};

/// Changed cases that are shown with their timelines.
const TIMELINES: usize = 12;

/// The text of the page.
pub(in super::super) fn render(comparison: &Comparison) -> String {
    let names: Vec<&str> = comparison.reports().iter().map(Compared::label).collect();
    let title = format!("plumbline: {}", names.join(" and "));
    let is_same = comparison.changed().next().is_none();
    let header = html! {
        div class={ "banner " (if is_same { "pass" } else { "inconclusive" }) } {
            h1 { (comparison.sentence()) }
            p { (names.join(", ")) }
        }
        (reports(comparison))
    };
    let detail = Detail::of(comparison.reports().iter().map(Compared::report));
    let main = html! {
        (changes(comparison, detail))
        (claims(comparison))
    };
    page(
        &title,
        &header,
        &main,
        &format!("plumbline {}", env!("CARGO_PKG_VERSION")),
    )
}

fn reports(comparison: &Comparison) -> Markup {
    html! {
        div class="area" {
            table {
                thead {
                    tr { th scope="col" { "report" } th scope="col" { "cases" } th scope="col" { "claims" } th scope="col" { "made" } }
                }
                tbody {
                    @for (number, compared) in (1..).zip(comparison.reports()) {
                        @let report = compared.report();
                        tr {
                            th scope="row" {
                                (number) ". " (compared.label())
                                span class="soft small sentence" { (compared.file()) }
                            }
                            td data-column="cases" {
                                span class="pass" { (report.counts.pass) " passed" } ", "
                                span class=(if report.counts.fail > 0 { "fail" } else { "soft" }) { (report.counts.fail) " failed" } ", "
                                (report.counts.inconclusive) " inconclusive, " (report.counts.exempt) " exempt, "
                                (report.counts.skipped) " skipped, " (report.counts.not_supported) " not supported"
                            }
                            td data-column="claims" { (compared.coverage().sentence()) }
                            td data-column="made" {
                                "by plumbline " (report.plumbline) ", " (day(&report.started)) ", kernel " (report.cluster.kernel)
                                @if let Some(words) = report.no_conformance() { ", " strong { (words) } }
                                @if report.interrupted { ", " strong { "interrupted" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn changes(comparison: &Comparison, detail: Detail) -> Markup {
    let changed: Vec<Row<'_>> = comparison.changed().collect();
    html! {
        section aria-labelledby="changed" {
            h2 id="changed" { "What changed" }
            @if changed.is_empty() { p { "Nothing: every case ended alike in all reports." } }
            @for (number, row) in changed.iter().enumerate() { (change(comparison, row, (number < TIMELINES).then_some(detail))) }
        }
    }
}

/// With timelines, if their detail is given.
fn change(comparison: &Comparison, row: &Row<'_>, detail: Option<Detail>) -> Markup {
    let Some(any) = row.any() else {
        return html! {};
    };
    html! {
        article class="case" id=(row.id()) data-words=(matrix::words(any)) {
            h3 { (row.id()) }
            @for text in any.claims.values() { p class="claim" { (sentence(text)) } }
            dl class="broke" {
                @for (compared, case) in comparison.reports().iter().zip(row.cases()) {
                    dt { (compared.label()) }
                    dd {
                        @match case {
                            Some(case) => {
                                (mark_of(case))
                                @if let Some(words) = what_broke(case) { ": " (words) }
                            }
                            None => { span class="verdict skipped" { "– not run" } }
                        }
                    }
                }
            }
            @if let Some(detail) = detail {
                @for (compared, case) in comparison.reports().iter().zip(row.cases()) {
                    @if let Some(case) = case.filter(|case| case.timeline.is_some()) {
                        p class="small" { strong { (compared.label()) } }
                        (timeline::render(case, detail))
                    }
                }
            }
        }
    }
}

fn claims(comparison: &Comparison) -> Markup {
    let claims = comparison.claims();
    html! {
        section aria-labelledby="claims" {
            h2 id="claims" { "Who keeps which claim" }
            div class="area" {
                table {
                    thead {
                        tr {
                            th scope="col" { "claim" }
                            @for compared in comparison.reports() { th scope="col" { (compared.label()) } }
                        }
                    }
                    tbody {
                        @for (id, text, kept) in &claims {
                            tr data-words=(format!("{id} {}", kept.iter().map(|kept| said(*kept)).collect::<Vec<_>>().join(" "))) {
                                th scope="row" { (id) span class="soft small sentence" { (sentence(text)) } }
                                @for (kept, compared) in kept.iter().zip(comparison.reports()) {
                                    td data-column=(compared.label()) class=(class_of(*kept)) { (sign_of(*kept)) " " (said(*kept)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn class_of(kept: Option<bool>) -> &'static str {
    match kept {
        Some(true) => "pass",
        Some(false) => "fail",
        None => "skipped",
    }
}

fn sign_of(kept: Option<bool>) -> &'static str {
    match kept {
        Some(true) => "✓",
        Some(false) => "✗",
        None => "–",
    }
}
