//! The reports of a run, and `plumbline report`, which makes them again.
//!
//! ```text
//! case reports, histories ─▶ make ─▶ format::Report ─▶ files ─▶ report.yaml
//!                                        ▲  │                   ├─▶ report.html (html/)
//!                    report.yaml ─▶ read ┘  └───────────────────└─▶ junit.xml   (junit)
//! ```
//!
//! `format.rs` is what is public; `suites/reports/schema` has the same for other programs. `validate.rs`: what a
//! report must hold to besides. `software.rs`: what ran. `timeline.rs`: what every client saw. `text.rs`: for a terminal.
//! `command.rs`: `plumbline report`, which has a summary in Markdown, too (`markdown.rs`).
pub(crate) mod command;
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
