//! The agent treats the node's packet filter as its own.
//!
//! The bug of an agent that begins with empty tables, so that no rule of an earlier version is left: the tables of others
//! go, too.

use std::{
    io,
    process::{Command, ExitStatus},
};

use doctor::EvictionError;
use reference_agent::datapath::Datapath;

use crate::datapath_decorator::{Flaw, Flawed};

/// The production agent's datapath, which calls `flush` whenever it has attached its programs.
pub fn rules_flushed<D: Datapath, F: Fn() + Send>(inner: D, flush: F) -> Flawed<D, RulesFlushed<F>> {
    Flawed::new(inner, RulesFlushed(flush))
}

/// The flaw.
#[derive(Debug)]
pub struct RulesFlushed<F>(F);

impl<D: Datapath, F: Fn() + Send> Flaw<D> for RulesFlushed<F> {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn attach(&mut self, inner: &mut D) -> Result<(), EvictionError> {
        inner.attach()?;
        (self.0)();
        Ok(())
    }
}

/// Removes all tables of this network namespace.
///
/// # Errors
/// There is no nft.
pub fn flush() -> io::Result<ExitStatus> {
    Command::new("nft").args(["flush", "ruleset"]).status()
}
