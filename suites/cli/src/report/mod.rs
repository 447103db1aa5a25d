//! The reports of a run, and `plumbline report`, which shows them again.
//!
//! ```text
//! case reports, histories ─▶ make ─▶ format::Report ─▶ files ─▶ report.yaml
//!                                        ▲  │                   ├─▶ report.html (html/)
//!                    report.yaml ─▶ read ┘  └───────────────────└─▶ junit.xml   (junit)
//! ```
//!
//! `format.rs` is the public format; `suites/reports/schema` is its JSON Schema. `validate.rs`: further rules of a
//! report. `software.rs`: versions. `timeline.rs`: what every client saw. `explanation.rs`: what broke, in sentences.
//! `coverage.rs`: the part of the catalogue that a report decides. `text.rs`: for a terminal. `command.rs`: `plumbline
//! report`, which also prints Markdown (`markdown.rs`). `compare.rs`: several reports side by side.
pub(crate) mod command;
mod compare;
mod coverage;
mod explanation;
pub(crate) mod files;
pub(crate) mod format;
#[cfg(test)]
pub(crate) mod golden;
mod html;
mod junit;
pub(crate) mod make;
mod markdown;
pub(crate) mod software;
pub(crate) mod text;
pub(crate) mod timeline;
mod validate;
