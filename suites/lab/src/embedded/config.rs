//! What an embedded lab is told at its start.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::LabError;

/// Name of a lab that nobody gave a name.
pub const DEFAULT_NAME: &str = "lab";

/// Settings of an embedded lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabConfig {
    /// Its run id: everything that it makes carries it. See [`check_name`].
    pub name: String,
    /// How many nodes, 1 to [`LabConfig::MOST_NODES`]; they are called `node1`, `node2` …
    pub nodes: u8,
    /// What is under test on each node.
    pub agent: AgentCommand,
    /// The `plumbline` executable: it is the supervisor and, as `plumbline probe`, the only container image.
    pub plumbline: PathBuf,
}

/// How the agent under test is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCommand {
    /// What reports call it: `reference`, `mutant:NAME` …
    pub label: String,
    /// Program and first arguments; `run`, `cleanup` and their arguments follow. The program's path is absolute.
    pub argv: Vec<String>,
}

impl AgentCommand {
    /// The reference agent at a path.
    #[must_use]
    pub fn reference(path: &Path) -> Self {
        Self {
            label: "reference".to_owned(),
            argv: vec![path.to_string_lossy().into_owned()],
        }
    }
}

impl LabConfig {
    /// Most nodes of one lab: their addresses and pod ranges are numbered from one byte.
    pub const MOST_NODES: u8 = 50;

    /// Two nodes with the reference agent; both programs are looked for beside the running one.
    ///
    /// # Errors
    /// The name breaks [`check_name`], or one of the programs is not there.
    pub fn new(name: &str) -> Result<Self, LabError> {
        check_name(name)?;
        Ok(Self {
            name: name.to_owned(),
            nodes: 2,
            agent: AgentCommand::reference(&sibling("reference-agent")?),
            plumbline: sibling("plumbline")?,
        })
    }

    /// Everything that can be wrong before anything is made.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), LabError> {
        check_name(&self.name)?;
        if self.nodes == 0 || self.nodes > Self::MOST_NODES {
            return Err(LabError::Nodes { found: self.nodes });
        }
        let Some(agent) = self.agent.argv.first() else {
            return Err(LabError::NoAgent);
        };
        for (what, path) in [
            ("agent", Path::new(agent)),
            ("plumbline", self.plumbline.as_path()),
        ] {
            if !path.is_absolute() || !path.is_file() {
                return Err(LabError::MissingProgram {
                    what,
                    path: path.to_owned(),
                });
            }
        }
        Ok(())
    }
}

/// A program beside the running one: where cargo, and an archive of ours, put them.
///
/// # Errors
/// There is none, or the running program's own path can't be read.
pub fn sibling(name: &'static str) -> Result<PathBuf, LabError> {
    let own = std::env::current_exe().map_err(|error| LabError::Io {
        what: "read the path of the running program".to_owned(),
        error,
    })?;
    if own.file_name().is_some_and(|file| file == name) {
        return Ok(own);
    }
    // Test binaries and examples are one folder deeper than programs.
    let folders = own.ancestors().skip(1).take(2);
    let candidates: Vec<PathBuf> = folders.map(|folder| folder.join(name)).collect();
    candidates
        .iter()
        .find(|path| path.is_file())
        .cloned()
        .ok_or_else(|| LabError::MissingProgram {
            what: name,
            path: candidates
                .into_iter()
                .next()
                .unwrap_or_else(|| PathBuf::from(name)),
        })
}

/// A lab's name is a folder, a cgroup and a part of a socket's path: 1 to 32 of `a-z`, `0-9` and `-`, with no
/// `-` at either end.
///
/// # Errors
/// It is not.
pub fn check_name(name: &str) -> Result<(), LabError> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = (1..=32).contains(&name.len())
        && name.bytes().all(good)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if fits {
        Ok(())
    } else {
        Err(LabError::Name {
            found: name.to_owned(),
        })
    }
}
