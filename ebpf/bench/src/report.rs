//! What was measured, as tables for people and as CSV for programs.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets};

use crate::{connect, packet, sample::Sample};

/// The packets' table.
pub(crate) fn packets(costs: &[packet::Cost]) -> String {
    let mut table = table(
        &[
            "packet",
            "hook",
            "family",
            "ns, alone",
            "ns, among 50,000 services",
            "ratio",
            "aim, ns",
        ],
        3,
    );
    for cost in costs {
        let aim = cost.aim.map_or_else(String::new, |aim| {
            let kept = cost.alone.median().max(cost.among_many.median()) <= aim;
            format!("≤ {aim}{}", if kept { "" } else { ", missed" })
        });
        table.add_row([
            cost.name.to_owned(),
            cost.hook.to_owned(),
            cost.family.to_owned(),
            cost.alone.median().to_string(),
            cost.among_many.median().to_string(),
            ratio(&cost.among_many, &cost.alone),
            aim,
        ]);
    }
    format!("What a packet costs (medians; what measuring itself costs, first row, included)\n{table}\n")
}

/// The table of connects.
pub(crate) fn connects(costs: &[connect::Cost]) -> String {
    let mut table = table(
        &[
            "connect()",
            "family",
            "socket",
            "µs",
            "µs, 90 of 100",
            "ratio to no programs",
        ],
        3,
    );
    for group in costs.chunk_by(|one, other| (one.protocol, one.family) == (other.protocol, other.family)) {
        let Some(bare) = group.first() else { continue };
        for cost in group {
            table.add_row([
                cost.protocol.to_owned(),
                cost.family.to_owned(),
                cost.kind.to_owned(),
                microseconds(cost.sample.median()),
                microseconds(cost.sample.percentile(90)),
                ratio(&cost.sample, &bare.sample),
            ]);
        }
    }
    format!("What connect() costs, on the loopback device (medians)\n{table}\n")
}

/// The packets as CSV.
pub(crate) fn packets_csv(costs: &[packet::Cost]) -> String {
    let mut text =
        "packet,hook,family,services,median_ns,p10_ns,p90_ns,samples,packets_per_sample\n".to_owned();
    for cost in costs {
        for (services, sample) in [("own", &cost.alone), ("50000", &cost.among_many)] {
            let packet::Cost {
                name,
                hook,
                family,
                repeat,
                ..
            } = cost;
            let _ = writeln!(
                text,
                "{},{hook},{family},{services},{},{repeat}",
                quoted(name),
                numbers(sample)
            );
        }
    }
    text
}

/// The connects as CSV.
pub(crate) fn connects_csv(costs: &[connect::Cost]) -> String {
    let mut text = "protocol,family,socket,median_ns,p10_ns,p90_ns,samples\n".to_owned();
    for cost in costs {
        let connect::Cost {
            protocol,
            family,
            kind,
            sample,
        } = cost;
        let _ = writeln!(text, "{protocol},{family},{},{}", quoted(kind), numbers(sample));
    }
    text
}

/// Writes a file of the folder, and prints its name.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    println!("written: {}", path.display());
    Ok(())
}

/// With numbers, from this column on, at the right.
fn table(header: &[&str], numbers: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn ratio(this: &Sample, other: &Sample) -> String {
    this.ratio(other)
        .map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn microseconds(nanoseconds: u64) -> String {
    format!("{:.2}", nanoseconds as f64 / 1000.0)
}

fn numbers(sample: &Sample) -> String {
    let [low, high] = [10, 90].map(|of_hundred| sample.percentile(of_hundred));
    format!("{},{low},{high},{}", sample.median(), sample.count())
}

/// A field of CSV (RFC 4180).
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
