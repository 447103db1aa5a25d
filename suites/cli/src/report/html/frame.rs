//! The frame of every page: style, filter, and the appearance of verdicts.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    super::format::{Case, Verdict},
    timeline,
};

/// A whole page.
pub(super) fn page(title: &str, header: &Markup, main: &Markup, from: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style {
                    (PreEscaped(timeline::STYLE)) (PreEscaped(include_str!("style.css")))
                }
            }
            body {
                (timeline::definitions())
                header { (header) }
                // Without the script there is nothing to type into.
                p class="filter" hidden {
                    label { "Show only " input type="search" placeholder="release, fail, IPv6 …"; }
                    " " span class="soft small" role="status" {}
                }
                main { (main) }
                footer class="soft small" { p { (from) } }
                script { (PreEscaped(include_str!("filter.js"))) }
            }
        }
    };
    page.into_string()
}

/// A sign that distinguishes verdicts without colour.
pub(super) fn sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "✓",
        Verdict::Fail => "✗",
        Verdict::Inconclusive => "?",
        Verdict::Skipped | Verdict::NotSupported => "–",
    }
}

/// Sign and name of a case's verdict.
pub(super) fn mark_of(case: &Case) -> Markup {
    html! { span class={ "verdict " (case.label()) } { (sign(case.verdict)) " " (case.label()) } }
}

/// A claim's sentence: what stands between backticks is code.
pub(super) fn sentence(text: &str) -> Markup {
    html! {
        @for (number, part) in text.split('`').enumerate() {
            @if number % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// A time by RFC 3339 in UTC, to the minute.
pub(super) fn day(time: &str) -> String {
    match time.get(..16).zip(time.strip_suffix('Z')) {
        Some((minutes, _)) => format!("{} UTC", minutes.replacen('T', " ", 1)),
        None => time.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_by_people_and_code_in_a_sentence_is_code() {
        assert_eq!(day("2026-05-04T03:02:01.5Z"), "2026-05-04 03:02 UTC");
        assert_eq!(day("2026-05-04T03:02:01+02:00"), "2026-05-04T03:02:01+02:00");
        let text = sentence("`t` keeps <b> of `t-ext`").into_string();
        assert_eq!(text, "<code>t</code> keeps &lt;b&gt; of <code>t-ext</code>");
    }
}
