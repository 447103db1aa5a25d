//! The reports of a run, and `plumbline report`, which makes them again.
//!
//! ```text
//! case reports, histories ─▶ make ─▶ format::Report ─▶ files ─▶ report.yaml
//!                                        ▲  │                   ├─▶ report.html (html/)
//!                    report.yaml ─▶ read ┘  └───────────────────└─▶ junit.xml   (junit)
//! ```
//!
//! `format.rs` is what is public; `schema.json` beside it is the same for other programs. `timeline.rs`: what every client
//! saw. `command.rs`: `plumbline report`.
pub(crate) mod command;
pub(crate) mod files;
pub(crate) mod format;
#[cfg(test)]
mod golden;
mod html;
mod junit;
pub(crate) mod make;
pub(crate) mod timeline;
