//! Charts of what clients saw: a strip for each client, grouped by destination, below numbered marks of what the case did.
//!
//! `cells.rs`: the appearance of each part of a strip. `chart.rs`: the drawing, which fits any width, as text keeps its
//! size. `page.rs`: it in report.html. `file.rs`: it as an SVG file.
mod cells;
mod chart;
mod file;
mod page;

pub(in super::super) use file::svg;
pub(super) use page::{definitions, render};

/// Colours, light and dark, and the style of charts, in pages and in files.
pub(super) const STYLE: &str = concat!(include_str!("palette.css"), include_str!("chart.css"));
