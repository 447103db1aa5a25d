//! bench.html: one file that needs no network and suits dark mode and paper.

use bench::{By, Delays, Figure, Row, Settings, Starts};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    Figures, Machine,
    text::{bare, mebibytes, middle, words},
};

const STYLE: &str = "
:root { color-scheme: light dark; --ink: light-dark(#1c1c1c, #e6e6e6); --paper: light-dark(#fff, #16181b);
  --soft: light-dark(#5c6066, #9aa0a8); --direct: light-dark(#9aa8b8, #5d6b7c); --service: light-dark(#2f6fb0, #64a3e0); }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; } h3 { font-size: 1rem; margin: 1rem 0 0; }
.soft { color: var(--soft); } .small { font-size: .85rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .15rem .8rem .15rem 0; white-space: nowrap; } th { font-weight: 400; }
td:last-child { white-space: normal; width: 99%; }
svg { display: block; } .direct { fill: var(--direct); } .service { fill: var(--service); }
.range { stroke: var(--ink); stroke-width: 2; } .one { stroke: var(--soft); stroke-dasharray: 2 2; }
";

/// Width of a chart for a share of one, in pixels, and the largest share that it shows.
const WIDTH: f64 = 180.0;
const MOST: f64 = 1.3;

/// The page.
pub(super) fn page(machine: &Machine, settings: &Settings, figures: &Figures<'_>) -> String {
    let Figures {
        rows,
        delays,
        starts,
        memory,
    } = figures;
    let names: Vec<&str> = settings
        .targets
        .iter()
        .map(|target| target.label.as_str())
        .collect();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "plumbline bench: " (names.join(", ")) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (names.join(", ")) }
                p { (machine.words()) }
                p class="soft" {
                    (settings.rounds) " rounds of " (settings.lasts.as_millis()) " ms. A bar is the number of exchanges in a second \
                    as a share of those in a lab without an implementation, in the same round: the median of the rounds, and the \
                    quartiles as a line. The dashed line is one."
                }
                @for (services, way) in headings(rows) {
                    h2 { (services) " Services: " (way.words()) }
                    @for row in rows.iter().filter(|row| (row.services, row.way) == (services, way)) {
                        h3 { (row.work.name()) " " span class="soft small" { (bare(row)) " without an implementation" } }
                        table { tbody { @for figure in &row.figures { (line(figure)) } } }
                    }
                }
                @if !delays.is_empty() { (changes(delays)) }
                @if !starts.is_empty() { (cold_starts(starts)) }
                @if !memory.is_empty() {
                    h2 { "Memory of an agent" }
                    table { tbody {
                        @for one in *memory {
                            tr { th { (one.services) " Services" } td { (one.target) } td { (format!("{:.0} MiB", mebibytes(one))) } }
                        }
                    } }
                }
            }
        }
    };
    page.into_string()
}

/// What rows are grouped by, in their order.
fn headings(rows: &[Row]) -> Vec<(usize, bench::Way)> {
    let mut all: Vec<_> = rows.iter().map(|row| (row.services, row.way)).collect();
    all.dedup();
    all
}

fn line(figure: &Figure) -> Markup {
    let class = match figure.by {
        By::Direct => "direct",
        By::Service => "service",
    };
    let at = |share: f64| format!("{:.1}", share.clamp(0.0, MOST) * WIDTH);
    html! {
        tr {
            th { (figure.target) }
            td { @match figure.by { By::Direct => "direct", By::Service => "by a Service" } }
            td {
                svg width=(WIDTH * MOST) height="14" role="img" aria-label=(middle(&figure.share, 2)) {
                    rect class=(class) x="0" y="2" width=(at(figure.share.median)) height="10" {}
                    line class="range" x1=(at(figure.share.lower)) x2=(at(figure.share.upper)) y1="7" y2="7" {}
                    line class="one" x1=(at(1.0)) x2=(at(1.0)) y1="0" y2="14" {}
                }
            }
            td { (words(figure)) }
        }
    }
}

fn cold_starts(starts: &[Starts]) -> Markup {
    html! {
        h2 { "From a cold start until each Service of the sample (up to 256) was served" }
        table {
            thead { tr { th { "Services" } th { "target" } th { "seconds" } th { "longest" } } }
            tbody {
                @for start in starts {
                    tr {
                        td { (start.services) }
                        td { (start.target) }
                        td { (middle(&start.took_s, 2)) }
                        td { (format!("{:.2}", start.longest_s)) }
                    }
                }
            }
        }
    }
}

fn changes(delays: &[Delays]) -> Markup {
    html! {
        h2 { "From the write of a slice to the first connection that its new endpoint answered" }
        table {
            thead { tr {
                th { "Services" } th { "other changes a second" } th { "target" } th { "milliseconds" } th { "longest" }
                th { "failed connections until then" }
            } }
            tbody {
                @for delay in delays {
                    tr {
                        td { (delay.services) }
                        td { (delay.others) " (" (format!("{:.0}", delay.others_made)) " made)" }
                        td { (delay.target) }
                        td { (middle(&delay.took_ms, 1)) }
                        td { (format!("{:.1}", delay.longest_ms)) }
                        td { (delay.failed) }
                    }
                }
            }
        }
    }
}
