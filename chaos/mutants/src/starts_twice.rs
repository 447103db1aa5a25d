//! An agent that has removed an earlier load's leftovers ends, and needs another start.
//!
//! Served traffic does not show the bug: the next start finds no leftovers, and works.

use std::sync::atomic::{AtomicBool, Ordering};

use doctor::Inventory;
use lb_loader::{LoaderError, Ownership};
use reference_agent::datapath::Datapath;

use crate::datapath_decorator::{Flaw, Flawed};

/// The production agent's datapath, which calls `end` once the leftovers that existed are gone.
pub fn starts_twice<D: Datapath, E: Fn() + Send>(inner: D, end: E) -> Flawed<D, StartsTwice<E>> {
    let had_some = AtomicBool::new(false);
    Flawed::new(inner, StartsTwice { had_some, end })
}

/// The flaw.
#[derive(Debug)]
pub struct StartsTwice<E> {
    had_some: AtomicBool,
    end: E,
}

impl<D: Datapath, E: Fn() + Send> Flaw<D> for StartsTwice<E> {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn leftovers(&self, inner: &D) -> Result<Inventory, LoaderError> {
        let inventory = inner.leftovers()?;
        let mut found = inventory.attachments.iter();
        if found.any(|found| found.ownership == Ownership::Earlier) {
            self.had_some.store(true, Ordering::Relaxed);
        } else if self.had_some.swap(false, Ordering::Relaxed) {
            (self.end)();
        }
        Ok(inventory)
    }
}
