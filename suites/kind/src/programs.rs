//! Programs of ours that are put on a cluster.

use std::path::PathBuf;

use cluster::image::{AGENT, PROBE};
use lab::sibling;

use super::{KindError, KindTarget, images::Archive};

/// Programs of ours that a cluster gets.
pub(super) struct Programs {
    /// This one, or the one beside it.
    pub(super) plumbline: PathBuf,
    /// Where it is deployed.
    agent: Option<PathBuf>,
}

impl Programs {
    /// Finds those that a target needs, beside this program.
    pub(super) fn find(target: KindTarget) -> Result<Self, KindError> {
        let find = |name: &str| {
            sibling(name).map_err(|error| KindError::Unexpected {
                what: format!("find the program {name}"),
                why: error.to_string(),
            })
        };
        Ok(Self {
            plumbline: find("plumbline")?,
            agent: (target == KindTarget::Reference)
                .then(|| find("reference-agent"))
                .transpose()?,
        })
    }

    /// Makes the images of the probe and of the agent.
    pub(super) fn images(&self) -> Result<(Archive, Option<Archive>), KindError> {
        let probe = Archive::make(&PROBE, &self.plumbline)?;
        let agent = self.agent.iter().map(|program| Archive::make(&AGENT, program));
        Ok((probe, agent.collect::<Result<Vec<_>, _>>()?.pop()))
    }
}
