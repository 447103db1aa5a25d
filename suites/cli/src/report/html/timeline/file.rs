//! A chart as an SVG file, for documents: with what the case says, the legend and the marks as text.

use maud::{Markup, PreEscaped, html};

use super::{
    super::{super::format::Case, detail::Detail},
    STYLE,
    chart::{self, Chart, Drawing},
    page,
};

/// Width of the file.
const WIDTH: u32 = 860;
/// Space at the edges.
const EDGE: u32 = 16;
/// Height of a line of text.
const LINE: u32 = 17;
/// Average width of a character of the text, of 12 pixels, and of small text; there are no fonts to measure.
const CHARACTER: f64 = 7.0;

/// The timeline of a case as the text of an SVG file; `None`, if it has none.
pub(in super::super::super) fn svg(case: &Case) -> Option<String> {
    let timeline = case.timeline.as_ref()?;
    let (lanes, _) = page::split(timeline, Detail::ALL.lanes());
    let chart = Chart::of(timeline, lanes, &page::axes(case));
    let Drawing { height, body, legend } = chart.draw();
    let mut y = EDGE;
    let mut texts: Vec<(&str, u32, String)> = Vec::new();
    let mut line = |class, words: String| {
        y += LINE;
        texts.push((class, y, words));
    };
    line("title", format!("{}: {}", case.id, case.label()));
    for claim in case.claims.values() {
        wrapped(&claim.replace('`', ""))
            .into_iter()
            .for_each(|words| line("soft", words));
    }
    if let Some(explanation) = &case.explanation {
        let event = explanation.event.iter();
        let happened = std::iter::once(&explanation.happened).chain(event);
        happened
            .flat_map(|words| wrapped(words))
            .for_each(|words| line("happened", words));
    }
    let chart_at = y + 12;
    y = chart_at + height + 6;
    let mut samples: Vec<(u32, u32, Markup, &str)> = Vec::new();
    let mut x = EDGE;
    for entry in &legend {
        let wide = 30 + (entry.words.chars().count() as f64 * CHARACTER) as u32;
        if x + wide > WIDTH - EDGE {
            x = EDGE;
            y += LINE + 4;
        }
        samples.push((x, y, entry.sample(), &entry.words));
        x += wide;
    }
    y += LINE + 8;
    for (number, mark) in (1..).zip(chart.marks()) {
        for (part, words) in wrapped(&chart::shortened(&mark.text)).into_iter().enumerate() {
            y += LINE;
            let number = if part == 0 {
                format!("{number}.")
            } else {
                String::new()
            };
            let at = if part == 0 {
                format!("{:.1} s", mark.at)
            } else {
                String::new()
            };
            texts.push(("number", y, number));
            texts.push(("time", y, at));
            texts.push(("what", y, words));
        }
    }
    let tall = y + EDGE;
    let title = format!("{}: what its clients saw", case.id);
    let file = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {tall}")) width=(WIDTH) height=(tall)
            role="img" aria-label=(title) {
            title { (title) }
            style { (PreEscaped(STYLE)) }
            defs { (page::hatching()) }
            rect class="paper" width=(WIDTH) height=(tall) rx="8" {}
            g class="file" {
                @for (class, y, words) in &texts {
                    @let x = match *class { "number" => EDGE, "time" => EDGE + 24, "what" => EDGE + 80, _ => EDGE };
                    @if !words.is_empty() {
                        text class=(if *class == "title" { format!("title {}", case.label()) } else { (*class).to_owned() })
                            x=(x) y=(y) { (words) }
                    }
                }
                @for (x, y, sample, words) in &samples {
                    g transform=(format!("translate({x} {y})")) { (sample) text x="22" y="11" { (words) } }
                }
            }
            svg class="chart" x=(EDGE) y=(chart_at) width=(WIDTH - 2 * EDGE) height=(height) { (body) }
        }
    };
    Some(file.into_string())
}

/// The text in lines that fit the width.
fn wrapped(text: &str) -> Vec<String> {
    let most = (f64::from(WIDTH - 2 * EDGE - 80) / CHARACTER) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{super::super::super::golden, *};

    #[test]
    fn the_file_stands_alone_and_has_both_colour_schemes() {
        let report = golden::report();
        let case = report.cases.iter().find(|case| case.timeline.is_some()).unwrap();
        let text = svg(case).unwrap();
        assert!(text.starts_with("<svg xmlns="), "{}", &text[..80]);
        assert!(text.contains("prefers-color-scheme: dark"));
        assert!(text.contains("id=\"hatching\"") && text.contains("class=\"wrong\""));
        for outside in ["href=", "@import", "<script", "url(h"] {
            assert!(!text.contains(outside), "{outside}");
        }
        for mark in &case.timeline.as_ref().unwrap().marks {
            assert!(text.contains(&mark.text), "{}", mark.text);
        }
        assert!(text.len() < 60_000, "{}", text.len());
        let without = report.cases.iter().find(|case| case.timeline.is_none()).unwrap();
        assert_eq!(svg(without), None);
    }

    #[test]
    fn long_text_is_wrapped_between_words() {
        let lines = wrapped(&"word ".repeat(60));
        assert_eq!(lines.len(), 3);
        assert!(
            lines
                .iter()
                .all(|line| line.len() < 130 && line.ends_with("word"))
        );
    }
}
