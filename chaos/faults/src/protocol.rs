//! Lines between [`LeftoverPrograms`](crate::LeftoverPrograms) and its helper: JSON, with one answer for each command.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A program that the helper keeps loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldProgram {
    /// Hook at which it was found.
    pub hook: String,
    /// Id.
    pub id: u32,
    /// Name in the kernel, which is not unique.
    pub name: String,
    /// Ids of its maps.
    pub maps: Vec<u32>,
}

/// The cgroup to which programs are attached again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum At {
    /// The agent's.
    #[default]
    Own,
    /// The one below it with the node's processes that are in no pod.
    Below,
    /// The one right above it, even if no mount of the node shows it.
    Above,
    /// The one right above it, which a new mount of the node shows while the fault lasts.
    AboveShown,
}

/// How programs are attached again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum As {
    /// With `BPF_PROG_ATTACH` and `BPF_F_ALLOW_MULTI`: others may be attached too.
    #[default]
    Multi,
    /// With `BPF_PROG_ATTACH` and `BPF_F_ALLOW_OVERRIDE`: it is the only one there; one below runs in its place.
    Override,
    /// With `BPF_PROG_ATTACH` and no flag: it is the only one there, and none may be below.
    Exclusive,
    /// By a link that is pinned nowhere: the helper's descriptor keeps it.
    Link,
}

/// Where and how programs are attached again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staging {
    /// Where.
    pub at: At,
    /// How.
    #[serde(rename = "as")]
    pub manner: As,
}

impl fmt::Display for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.manner {
            As::Multi => "the legacy way, beside others,",
            As::Override => "the legacy way, with BPF_F_ALLOW_OVERRIDE,",
            As::Exclusive => "the legacy way, without a flag,",
            As::Link => "by a link that is pinned nowhere",
        })?;
        f.write_str(match self.at {
            At::Own => " to the agent's cgroup",
            At::Below => " to a cgroup below the agent's",
            At::Above => " to the cgroup above the agent's",
            At::AboveShown => " to the cgroup above the agent's, which a mount of the node shows",
        })
    }
}

/// The result of attaching again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reattached {
    /// Ids of the programs that were attached, without those that were attached in the same way already.
    Done(Vec<u32>),
    /// The kernel refuses this, with its reason. Nothing is attached.
    Refused(String),
}

/// Programs at one hook of the cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The hook.
    pub hook: String,
    /// Ids of the programs that run there, in the order in which they run.
    pub effective: Vec<u32>,
    /// Those of them that are attached to this very cgroup.
    pub direct: Vec<u32>,
}

/// Commands to the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Command {
    /// Attach the held programs.
    Attach(Staging),
    /// Replace the pinned links of the held programs by links to an empty cgroup.
    Displace {
        /// Whether that cgroup is removed afterwards.
        removed: bool,
    },
    /// List the pins of links that attach the held programs.
    Pinned,
    /// List what is attached to the target cgroup, which is the agent's at first.
    List,
    /// Detach what the helper attached.
    Detach,
}

/// The helper's answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    /// The first line: the held programs.
    Holds(Vec<HeldProgram>),
    /// To `attach` and `detach`: the ids of attached or detached programs.
    Done(Vec<u32>),
    /// To `pinned` and `displace`: pins of the links.
    Pinned(Vec<String>),
    /// To `list`.
    Attached(Vec<Attached>),
    /// To `attach`: the kernel's reason to refuse.
    Refused(String),
    /// The command failed, with the reason.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_short_json() {
        assert_eq!(serde_json::to_string(&Command::List).unwrap(), "\"list\"");
        assert_eq!(
            serde_json::to_string(&Command::Attach(Staging::default())).unwrap(),
            r#"{"attach":{"at":"own","as":"multi"}}"#
        );
        assert_eq!(
            serde_json::to_string(&Answer::Done(vec![7])).unwrap(),
            r#"{"done":[7]}"#
        );
        let held = HeldProgram {
            hook: "connect4".into(),
            id: 3,
            name: "connect4".into(),
            maps: vec![1],
        };
        assert_eq!(
            serde_json::to_string(&Answer::Holds(vec![held])).unwrap(),
            r#"{"holds":[{"hook":"connect4","id":3,"name":"connect4","maps":[1]}]}"#
        );
    }
}
