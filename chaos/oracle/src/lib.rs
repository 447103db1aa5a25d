//! Histories and the checkers that judge them.
pub mod history;
