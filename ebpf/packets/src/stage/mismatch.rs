//! What a row expected and what was seen.

use std::{collections::BTreeMap, error, fmt};

use crate::table::{Row, Step};

/// A row that does not hold.
#[derive(Clone, PartialEq, Debug)]
pub struct Mismatch {
    row: Row,
    step: usize,
    what: String,
    expected: String,
    found: String,
}

impl Mismatch {
    /// In a step of a row, something is not as expected.
    pub(super) fn new(
        row: &Row,
        step: usize,
        what: &str,
        expected: impl fmt::Debug,
        found: impl fmt::Debug,
    ) -> Box<Self> {
        Box::new(Self {
            row: row.clone(),
            step,
            what: what.to_owned(),
            expected: format!("{expected:?}"),
            found: format!("{found:?}"),
        })
    }

    /// The same, of a map: an entry in each line.
    pub(super) fn map<K: fmt::Debug, V: fmt::Debug, W: fmt::Debug>(
        row: &Row,
        what: &str,
        expected: &BTreeMap<K, V>,
        found: &BTreeMap<K, W>,
    ) -> Box<Self> {
        Box::new(Self {
            row: row.clone(),
            step: row.steps.len() - 1,
            what: what.to_owned(),
            expected: lines(expected),
            found: lines(found),
        })
    }

    /// The same, of packets.
    pub(super) fn packet(row: &Row, step: usize, what: &str, expected: &[u8], found: &[u8]) -> Box<Self> {
        Box::new(Self {
            row: row.clone(),
            step,
            what: what.to_owned(),
            expected: dump(expected, found),
            found: dump(found, expected),
        })
    }
}

impl error::Error for Mismatch {}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row {
            sentence,
            given,
            steps,
            ..
        } = &self.row;
        writeln!(f, "\"{sentence}\" does not hold")?;
        for entry in &given.entries {
            writeln!(f, "  given {entry:?}")?;
        }
        for (index, step) in steps.iter().enumerate().take(self.step + 1) {
            let Step {
                hook, device, packet, ..
            } = step;
            writeln!(f, "  packet {index} at {hook}, device {device}: {packet:?}")?;
        }
        writeln!(f, "  {} of packet {}:", self.what, self.step)?;
        writeln!(f, "    expected {}", indented(&self.expected))?;
        write!(f, "    found    {}", indented(&self.found))
    }
}

fn indented(text: &str) -> String {
    text.replace('\n', "\n    ")
}

fn lines<K: fmt::Debug, V: fmt::Debug>(map: &BTreeMap<K, V>) -> String {
    let mut text = format!("{} entries", map.len());
    for (key, value) in map {
        text.push_str(&format!("\n  {key:?}: {value:?}"));
    }
    text
}

/// Bytes, 16 in a line; those that another packet does not have there are in brackets.
fn dump(bytes: &[u8], other: &[u8]) -> String {
    let mut text = format!("{} bytes", bytes.len());
    for (line, chunk) in bytes.chunks(16).enumerate() {
        text.push_str(&format!("\n  {:4}:", line * 16));
        for (index, byte) in chunk.iter().enumerate() {
            if other.get(line * 16 + index) == Some(byte) {
                text.push_str(&format!("  {byte:02x} "));
            } else {
                text.push_str(&format!(" [{byte:02x}]"));
            }
        }
    }
    text
}
