//! The table on the terminal.

use std::{collections::BTreeMap, fmt::Write as _};

use bench::{By, Figure, Memory, Quartiles, Row, Work};

use super::Figures;

/// All figures.
pub(super) fn table(figures: &Figures<'_>) -> String {
    let Figures {
        rows,
        delays,
        starts,
        memory,
    } = figures;
    let width = rows
        .iter()
        .flat_map(|row| &row.figures)
        .map(|figure| figure.target.len())
        .max();
    let width = width.unwrap_or_default();
    let mut text = String::new();
    let mut before = None;
    for row in rows {
        let heading = (row.services, row.way);
        if before != Some(heading) {
            before = Some(heading);
            let _ = writeln!(text, "\n{} Services: {}", row.services, row.way.words());
        }
        let _ = writeln!(
            text,
            "  {}: {} without an implementation",
            row.work.name(),
            bare(row)
        );
        for figure in &row.figures {
            let by = match figure.by {
                By::Direct => "direct      ",
                By::Service => "by a Service",
            };
            let _ = writeln!(text, "    {:width$}  {by}  {}", figure.target, words(figure));
        }
    }
    for delay in delays {
        let _ = write!(
            text,
            "\n{} Services, {} other changes a second ({:.0} made): {} serves a new endpoint after {} ms, {:.1} at most{}",
            delay.services,
            delay.others,
            delay.others_made,
            delay.target,
            middle(&delay.took_ms, 1),
            delay.longest_ms,
            match delay.failed {
                0 => String::new(),
                failed => format!("; {failed} connections failed"),
            }
        );
    }
    if !delays.is_empty() {
        text.push('\n');
    }
    for start in starts {
        let _ = write!(
            text,
            "\n{} Services: {} has served each Service of the sample {} s after a cold start, {:.2} at most",
            start.services,
            start.target,
            middle(&start.took_s, 2),
            start.longest_s
        );
    }
    if !starts.is_empty() {
        text.push('\n');
    }
    for one in *memory {
        let _ = write!(
            text,
            "\n{} Services: {} has {:.0} MiB of memory",
            one.services,
            one.target,
            mebibytes(one)
        );
    }
    text.push('\n');
    text
}

/// What the kernel does alone, in words.
pub(super) fn bare(row: &Row) -> String {
    match row.work {
        Work::Stream => format!("{:.1} Gbit/s", row.bare.median * 65_536.0 * 8.0 / 1e9),
        _ => format!("{:.0} a second, {:.0} µs each", row.bare.median, row.bare_us),
    }
}

/// One implementation's figures, in words.
pub(super) fn words(figure: &Figure) -> String {
    format!(
        "{}, {:.0} µs, p99 {:.0} µs, {:.0} µs of processors{}",
        middle(&figure.share, 2),
        figure.median_us,
        figure.p99_us,
        figure.busy_us,
        failed(&figure.failed)
    )
}

fn failed(failed: &BTreeMap<String, u64>) -> String {
    failed
        .iter()
        .map(|(error, count)| format!("; {count} failed ({error})"))
        .collect()
}

/// The median, and the quartiles in brackets.
pub(super) fn middle(of: &Quartiles, digits: usize) -> String {
    format!(
        "{:.digits$} ({:.digits$}–{:.digits$})",
        of.median, of.lower, of.upper
    )
}

/// Memory in MiB.
pub(super) fn mebibytes(memory: &Memory) -> f64 {
    memory.resident_kib as f64 / 1024.0
}

#[cfg(test)]
mod tests {
    use bench::{Delays, Starts, Way};

    use super::*;

    fn quartiles(median: f64) -> Quartiles {
        Quartiles {
            lower: median - 0.01,
            median,
            upper: median + 0.01,
        }
    }

    #[test]
    fn a_table_has_shares_delays_memory_and_what_failed() {
        let figure = |target: &str, by, median| Figure {
            target: target.to_owned(),
            by,
            share: quartiles(median),
            median_us: 88.4,
            p99_us: 140.0,
            busy_us: 150.0,
            failed: BTreeMap::new(),
        };
        let mut of_service = figure("kube-proxy-nftables", By::Service, 0.76);
        of_service.failed.insert("ECONNREFUSED".to_owned(), 3);
        let row = Row {
            services: 10,
            way: Way::Pod,
            work: Work::Connect,
            bare: quartiles(12_345.0),
            bare_us: 81.0,
            figures: vec![figure("reference", By::Direct, 0.99), of_service],
        };
        let delay = Delays {
            target: "reference".to_owned(),
            services: 10,
            others: 20,
            others_made: 19.6,
            took_ms: quartiles(5.5),
            longest_ms: 9.8,
            failed: 0,
        };
        let memory = Memory {
            target: "reference".to_owned(),
            services: 10,
            resident_kib: 36 * 1024,
        };
        let start = Starts {
            target: "reference".to_owned(),
            services: 10,
            took_s: quartiles(0.14),
            longest_s: 0.17,
        };
        insta::assert_snapshot!(table(&Figures {
            rows: vec![row],
            delays: vec![delay],
            starts: vec![start],
            memory: &[memory],
        }));
    }
}
