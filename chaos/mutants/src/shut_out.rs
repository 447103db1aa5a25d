//! The agent treats programs of an earlier load as its own if they prevent its attachment: it attaches none, and
//! reports success.

use doctor::EvictionError;
use lb_loader::{Hook, LoaderError};
use reference_agent::datapath::Datapath;

use crate::{
    datapath_decorator::{Flaw, Flawed},
    stale_kept::{Overlooked, overlooking},
};

/// The production agent's datapath, which does not attach, and reports success, while one of these programs exists;
/// otherwise it overlooks them.
pub fn shut_out<D: Datapath>(inner: D, by: Overlooked) -> impl Datapath {
    let shut_out = ShutOut {
        by,
        is_shut_out: false,
    };
    overlooking(Flawed::new(inner, shut_out), by)
}

/// The flaw.
#[derive(Debug)]
struct ShutOut {
    by: Overlooked,
    is_shut_out: bool,
}

impl<D: Datapath> Flaw<D> for ShutOut {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn attach(&mut self, inner: &mut D) -> Result<(), EvictionError> {
        let seen = inner.leftovers()?.attachments;
        self.is_shut_out = seen.iter().any(|found| self.by.hides(found));
        if self.is_shut_out {
            return Ok(());
        }
        inner.attach()
    }

    fn unattached(&self, inner: &D) -> Result<Vec<Hook>, LoaderError> {
        if self.is_shut_out {
            return Ok(Vec::new());
        }
        inner.unattached()
    }
}
