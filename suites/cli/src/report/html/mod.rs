//! Pages: report.html and the comparison of reports. Each is one file that needs no network and suits phones, dark mode and
//! paper; its script only filters.
//!
//! `banner.rs`: the verdict and the coverage. `matrix.rs`: claims by area. `case.rs`: what is known of a case.
//! `environment.rs`: where and how it ran. `detail.rs`: how much of it is
//! shown. `frame.rs`: what pages share. `comparison.rs`: several reports. `timeline/`: charts of what clients saw.
mod banner;
mod case;
mod comparison;
mod detail;
mod environment;
mod frame;
mod matrix;
mod timeline;

use maud::{Markup, html};

use super::format::{Case, Report};
use crate::plural::counted;
use detail::Detail;

pub(super) use comparison::render as comparison;
pub(super) use timeline::svg;

/// The text of report.html.
pub(crate) fn render(report: &Report) -> String {
    let labelled = |labels: &[&str]| -> Vec<&Case> {
        let is_one = |case: &&Case| labels.contains(&case.label());
        report.cases.iter().filter(is_one).collect()
    };
    let detail = Detail::of([report]);
    let title = format!(
        "plumbline{}: {} on {}",
        report
            .no_conformance()
            .map_or_else(String::new, |words| format!(" ({words})")),
        report.cluster.target,
        report.cluster.provider
    );
    let main = html! {
        (section("failed", "What failed", &labelled(&["fail"]), detail, true))
        (section("undecided", "What could not be decided", &labelled(&["inconclusive"]), detail, true))
        (matrix::render(report))
        (section("exempt", "What the target is known not to keep", &labelled(&["exempt"]), detail, false))
        (section("passed", "What passed", &labelled(&["pass"]), detail, false))
        (section("left-out", "What did not run", &labelled(&["skipped", "not-supported"]), detail, false))
        (environment::render(report))
    };
    let from = format!("plumbline {}, {}", report.plumbline, report.format);
    frame::page(&title, &banner::render(report), &main, &from)
}

/// Cases below a heading; nothing without any.
fn section(id: &str, heading: &str, cases: &[&Case], detail: Detail, is_open: bool) -> Markup {
    if cases.is_empty() {
        return html! {};
    }
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (heading) " " span class="soft" { (counted(cases.len(), "case", "cases")) } }
            @for each in cases { (case::render(each, detail, is_open)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            format::{Axis, Counts, Finding, Verdict},
            golden,
            timeline::{Failure, Lane, Mark, MarkKind, Span, Timeline},
        },
        *,
    };

    const MOST_BYTES: usize = 2_000_000;

    /// A lane of an axis in which every column differs from its neighbours.
    fn lane(axis: usize, client: usize) -> Lane {
        let span = |column: u32| Span {
            from: f64::from(column),
            to: f64::from(column + 1),
            outcomes: (0..=column % 5)
                .map(|backend| (format!("answered by b{backend:02}.p465120-000/TCP/8000"), 9))
                .chain([("ECONNREFUSED from connect".to_owned(), 1 + column % 7)])
                .collect(),
            wrong: column % 3,
        };
        Lane {
            client: format!("host@plumbline-worker{client}"),
            target: format!(
                "[IPv4, {axis} shared, victim older, annotation and port] t-ext:7480 (10.96.125.70:7480)"
            ),
            transport: "UDP (connected)".into(),
            spans: (0..160).map(span).collect(),
            failure: Some(Failure {
                from: 28.0,
                to: 66.0,
                expected: "every probe served by exactly {b01.p465120-000/TCP/8000}".into(),
                found: "new connections refused, 207 of 238 outside: 207 ECONNREFUSED from connect".into(),
            }),
        }
    }

    /// Every case of the catalogue failed in 48 axes, with 16 findings in each, and everything that a timeline can have.
    fn large() -> Report {
        let mut report = golden::report();
        let failed = report.cases[1].clone();
        report.cases = cases::ALL
            .iter()
            .map(|known| {
                let axis = |number: usize| Axis {
                    name: format!("IPv{}, {number} shared, victim older, annotation and port", 4 + number % 2 * 2),
                    verdict: Verdict::Fail,
                    why: "[IPv4, 1 shared, victim older] t-ext:7480 (10.96.125.70:7480) TCP from pod@node1: refused".into(),
                    findings: vec![
                        Finding {
                            subject: "[IPv4, 1 shared, victim older] t-ext:7480 (10.96.125.70:7480) TCP from pod@node1".into(),
                            expected: "every probe served by exactly {b01.p465120-000/TCP/8000}".into(),
                            found: "new connections refused, 207 of 238 outside: 207 ECONNREFUSED from connect".into(),
                            attempts: vec!["at 1795759843.102141 pod@node1 ? → 10.96.125.70:7480 TCP: ECONNREFUSED from connect after 0.0 ms (nonce 73151ce40f93bf9c-20-31)".into(); 5],
                        };
                        16
                    ],
                };
                Case {
                    id: known.id.to_owned(),
                    area: known.area.to_owned(),
                    claims: known
                        .claims
                        .iter()
                        .filter_map(|id| cases::claims::find(id))
                        .map(|claim| (claim.id.to_string(), claim.sentence.clone()))
                        .collect(),
                    axes: (0..48).map(axis).collect(),
                    recorded: (0..40).map(|number| (format!("delay at most: IPv4, {number} shared, victim older"), "12 ms".to_owned())).collect(),
                    timeline: Some(Timeline {
                        seconds: 160.0,
                        marks: (0..60)
                            .map(|number| Mark {
                                at: f64::from(number),
                                kind: if number % 2 == 0 { MarkKind::Fault } else { MarkKind::Phase },
                                text: "the agent of node1 is killed, its programs stay attached to the cgroup".into(),
                            })
                            .collect(),
                        lanes: (0..40).map(|number| lane(number / 20, number)).collect(),
                        more_lanes: 254,
                    }),
                    ..failed.clone()
                }
            })
            .collect();
        report.counts = Counts::of(&report.cases);
        report
    }

    #[test]
    fn a_report_in_which_every_case_failed_is_small_enough_to_be_sent() {
        let report = large();
        assert!(report.cases.len() > 60, "{}", report.cases.len());
        let text = render(&report);
        assert!(text.len() < MOST_BYTES, "{} bytes", text.len());
        for case in &report.cases {
            assert!(
                text.contains(&format!("<details class=\"case\" id=\"{}\" open ", case.id)),
                "{}",
                case.id
            );
        }
        assert_eq!(
            text.matches("<figure class=\"timeline\">").count(),
            report.cases.len()
        );
        let reports = [("a".to_owned(), report.clone()), ("b".to_owned(), report)];
        let compared = crate::report::compare::Comparison::of(reports.to_vec());
        assert!(comparison(&compared).len() < MOST_BYTES);
    }

    #[test]
    fn what_failed_comes_first_and_everything_else_is_folded() {
        let text = render(&golden::report());
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part}"));
        assert!(at("id=\"failed\"") < at("id=\"claims\""));
        assert!(at("id=\"claims\"") < at("id=\"passed\""));
        assert!(text.contains("<details class=\"case\" id=\"stale-sock-legacy-multi\" open "));
        assert!(text.contains("<details class=\"case\" id=\"release-prefix-empty-list\" data"));
        let case = &text[at("id=\"stale-sock-legacy-multi\" open")..];
        let at = |part: &str| case.find(part).unwrap_or_else(|| panic!("no {part}"));
        assert!(at("<figure class=\"timeline\"") < at("class=\"broke\""));
        assert!(at("class=\"broke\"") < at("class=\"finding\""));
    }
}
