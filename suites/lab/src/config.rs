//! Configuration of an embedded lab.

use std::{
    collections::BTreeSet,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use cluster::{
    Deviation,
    software::{AgentSoftware, arguments},
    target::{Target, program::Program},
};
use serde::{Deserialize, Serialize};

use super::{IpFamilies, LIMITS, LabError, check_name, program, sibling, topology};

/// Settings of an embedded lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabConfig {
    /// Run id, which is part of the names of all that the lab creates. See [`check_name`].
    pub name: String,
    /// Number of nodes, 1 to [`LabConfig::MOST_NODES`]; their names are `node1`, `node2` …
    pub nodes: u8,
    /// Families of all its addresses.
    pub families: IpFamilies,
    /// Settings of the Kubernetes API.
    pub control_plane: ControlPlane,
    /// Factor for the start limit: 1, and more on a slow machine.
    pub timeout_scale: u32,
    /// The agent under test on each node.
    pub agent: AgentCommand,
    /// The `plumbline` executable: it is the supervisor and, as `plumbline probe`, the only container image.
    pub plumbline: PathBuf,
}

/// Settings of the Kubernetes API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlPlane {
    /// Number of API servers, 1 to [`ControlPlane::MOST_SERVERS`], over one store.
    pub servers: u8,
    /// Address that they write into `default/kubernetes`.
    pub advertise: Advertise,
    /// A folder with etcd, kube-apiserver and kube-controller-manager, which replace the lab's own.
    pub programs: Option<PathBuf>,
}

/// Which address an API server advertises (`--advertise-address`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Advertise {
    /// Its own: `default/kubernetes` has an endpoint for each server, and each agent uses one of them.
    #[default]
    Own,
    /// That of a load balancer in front of all: `default/kubernetes` has a single endpoint, which each server that
    /// stops removes for all until the next one reconciles. Agents use the load balancer.
    Shared,
}

impl Default for ControlPlane {
    fn default() -> Self {
        Self {
            servers: 1,
            advertise: Advertise::default(),
            programs: None,
        }
    }
}

impl ControlPlane {
    /// Most API servers of one lab.
    pub const MOST_SERVERS: u8 = topology::MOST_API_SERVERS;

    fn check_programs(&self) -> Result<(), LabError> {
        let Some(folder) = &self.programs else {
            return Ok(());
        };
        let mut needed = program::CONTROL_PLANE.iter();
        match needed.find(|program| !folder.is_absolute() || !folder.join(program).is_file()) {
            Some(program) => Err(LabError::ControlPlane {
                folder: folder.clone(),
                program,
            }),
            None => Ok(()),
        }
    }
}

/// How the agent under test is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCommand {
    /// Name in reports: `reference`, `mutant:NAME` …
    pub label: String,
    /// Program and first arguments; those of the target follow. The program's path is absolute.
    pub argv: Vec<String>,
    /// Optional features of the catalogue that it claims to have, by name.
    pub features: BTreeSet<String>,
    /// Claims of the catalogue that the target is known to break.
    pub deviations: Vec<Deviation>,
    /// The most endpoints that a node of it can hold.
    pub most_endpoints: Option<NonZeroU32>,
    /// Start, readiness and clean-up of the agent.
    pub program: Program,
    /// Path of the program of another release, if the target names one.
    pub other_release: Option<PathBuf>,
}

impl AgentCommand {
    /// A target by its name, or by the path of its file. `program` replaces the target's own program.
    ///
    /// # Errors
    /// The target or the program does not exist, or the target does not run in the lab.
    pub fn of_target(name: &str, program: Option<&Path>) -> Result<Self, LabError> {
        let target = Target::find(name)?;
        let own = target.lab.ok_or_else(|| LabError::NotHere {
            target: name.to_owned(),
        })?;
        let path = match program {
            // Symlinks are not resolved: a program with several names (busybox, a bundle of Kubernetes programs) acts
            // by its name.
            Some(path) => std::path::absolute(path)
                .ok()
                .filter(|path| path.is_file())
                .ok_or_else(|| LabError::MissingProgram {
                    what: "agent".to_owned(),
                    path: path.to_owned(),
                })?,
            None => program::find(&own.program)?,
        };
        let other = own.other_release.as_ref();
        let other = other.map(|other| program::find(&other.program)).transpose()?;
        Ok(Self {
            label: name.to_owned(),
            argv: vec![path.to_string_lossy().into_owned()],
            features: target.features,
            deviations: target.deviations,
            most_endpoints: target.most_endpoints,
            program: own,
            other_release: other,
        })
    }

    /// Digest and version of its program, and what could not be read.
    pub async fn software(&self) -> (AgentSoftware, Vec<String>) {
        let [path, first @ ..] = self.argv.as_slice() else {
            return Default::default();
        };
        let version = self.program.version.as_ref();
        let asked = version.map(|version| [first, version.as_slice()].concat());
        let (mut found, not_read) = AgentSoftware::of_program(Path::new(path), asked).await;
        found.arguments = arguments(first.iter().chain(&self.program.run));
        (found, not_read)
    }
}

impl LabConfig {
    /// Most nodes of one lab: with one digit each, their names sort by number. All of them share one kernel with all
    /// agents' programs and maps.
    pub const MOST_NODES: u8 = 9;

    /// Two nodes of IPv4 with the reference agent; both programs are looked for beside the running one.
    ///
    /// # Errors
    /// The name breaks [`check_name`], or a program does not exist.
    pub fn new(name: &str) -> Result<Self, LabError> {
        check_name(name)?;
        Ok(Self {
            name: name.to_owned(),
            nodes: 2,
            families: IpFamilies::default(),
            control_plane: ControlPlane::default(),
            timeout_scale: 1,
            agent: AgentCommand::of_target("reference", None)?,
            plumbline: sibling("plumbline")?,
        })
    }

    /// Limit of the lab's start.
    pub(super) fn up_limit(&self) -> Duration {
        let limit = match self.control_plane.programs {
            Some(_) => LIMITS.up_programs,
            None => LIMITS.up,
        };
        limit.saturating_mul(self.timeout_scale.max(1))
    }

    /// Checks everything that can be checked before the lab is created.
    ///
    /// # Errors
    /// The first error.
    pub fn check(&self) -> Result<(), LabError> {
        check_name(&self.name)?;
        if self.nodes == 0 || self.nodes > Self::MOST_NODES {
            return Err(LabError::Nodes { found: self.nodes });
        }
        let servers = self.control_plane.servers;
        if servers == 0 || servers > ControlPlane::MOST_SERVERS {
            return Err(LabError::ApiServers { found: servers });
        }
        self.control_plane.check_programs()?;
        let Some(agent) = self.agent.argv.first() else {
            return Err(LabError::NoAgent);
        };
        for (what, path) in [
            ("agent", Path::new(agent)),
            ("plumbline", self.plumbline.as_path()),
        ] {
            if !path.is_absolute() || !path.is_file() {
                return Err(LabError::MissingProgram {
                    what: what.to_owned(),
                    path: path.to_owned(),
                });
            }
        }
        program::check_tools(&self.agent.program, &self.agent.label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_machine_has_longer_to_come_up() {
        let config = LabConfig {
            name: "a".to_owned(),
            nodes: 2,
            families: IpFamilies::default(),
            control_plane: ControlPlane::default(),
            timeout_scale: 1,
            agent: AgentCommand::of_target("reference", Some(Path::new("/bin/true"))).expect("a target"),
            plumbline: PathBuf::from("/bin/true"),
        };
        assert_eq!(config.up_limit(), LIMITS.up);
        let slow = LabConfig {
            timeout_scale: 10,
            ..config.clone()
        };
        assert_eq!(slow.up_limit(), LIMITS.up * 10);
        let programs = ControlPlane {
            programs: Some(PathBuf::from("/usr/bin")),
            ..ControlPlane::default()
        };
        let kubernetes = LabConfig {
            control_plane: programs,
            ..slow
        };
        assert_eq!(kubernetes.up_limit(), LIMITS.up_programs * 10);
    }
}
