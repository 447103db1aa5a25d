//! The project's programs on a cluster.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use cluster::image::{AGENT, PROBE};
use lab::sibling;

use super::{KindError, KindTarget, PROGRAMS, containers::Container, error::io_error, images::Archive};

/// The project's programs that a cluster gets.
pub(super) struct Programs {
    /// This program, or the one beside it.
    pub(super) plumbline: PathBuf,
    /// The agent, if it is deployed.
    agent: Option<PathBuf>,
}

impl Programs {
    /// Finds the programs that a target needs, beside this program.
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

    /// Builds the images of the probe and of the agent.
    pub(super) fn images(&self) -> Result<(Archive, Option<Archive>), KindError> {
        let probe = Archive::make(&PROBE, &self.plumbline)?;
        let agent = self.agent.iter().map(|program| Archive::make(&AGENT, program));
        Ok((probe, agent.collect::<Result<Vec<_>, _>>()?.pop()))
    }
}

/// Copies a program to a node, for processes outside of pods.
pub(super) fn install(node: &Container, program: &Path, name: &str) -> Result<(), KindError> {
    let folder = node.path(Path::new(PROGRAMS));
    let file = folder.join(name);
    let failed = || io_error(format!("put {name} on the node {}", node.name));
    fs::create_dir_all(&folder).map_err(failed())?;
    // A running program's file can't be written, but replaced.
    let new = folder.join(format!("{name}.new"));
    fs::copy(program, &new).map_err(failed())?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).map_err(failed())?;
    fs::rename(&new, &file).map_err(failed())
}
