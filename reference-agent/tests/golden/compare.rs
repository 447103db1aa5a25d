//! What was expected, beside what was found.

use reference_agent::{findings::Finding, model::Kind, names::ObjectName};

/// A finding, and whose it is.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// Kind, name and reason.
    pub(super) head: String,
    /// The sentence.
    pub(super) message: String,
}

impl Found {
    pub(super) fn new(kind: Kind, name: &ObjectName, Finding { reason, message }: &Finding) -> Self {
        Self {
            head: format!("{kind:?} {name} {reason}"),
            message: message.clone(),
        }
    }

    /// Whether this is what was expected: the same head, and a sentence with this part.
    pub(super) fn is(&self, expected: &str) -> bool {
        let part = expected.strip_prefix(&self.head);
        part.is_some_and(|part| self.message.contains(part.trim_start()))
    }
}

/// The lines that only one of two texts has.
pub(super) fn difference(expected: &str, found: &str) -> String {
    let only = |sign: char, these: &str, those: &str| -> String {
        let lines = these
            .lines()
            .filter(|line| !those.lines().any(|other| other == *line));
        lines.map(|line| format!("{sign} {line}\n")).collect()
    };
    let (gone, new) = (only('-', expected, found), only('+', found, expected));
    format!("{gone}{new}found, whole:\n{found}")
}
