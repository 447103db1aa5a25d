//! Lines between a fault and its helper on the node: one JSON object each, one answer for each command.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A program that the helper holds by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldProgram {
    /// Hook at which it was found.
    pub hook: String,
    /// Id.
    pub id: u32,
    /// Name as the kernel keeps it: for people, not unique.
    pub name: String,
    /// Ids of the maps that it uses, and so keeps alive.
    pub maps: Vec<u32>,
}

/// The cgroup to which programs are attached again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum At {
    /// The agent's.
    #[default]
    Own,
    /// The one below it in which processes of the node run that are in no pod.
    Below,
    /// The one right above it, which the node's mounts need not show.
    Above,
    /// The same, and the node gets a mount that shows it, for as long as the fault lasts.
    AboveShown,
}

/// How programs are attached again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum As {
    /// With `BPF_PROG_ATTACH` and `BPF_F_ALLOW_MULTI`: others may be there too.
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

/// What came of attaching again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reattached {
    /// Ids of what is attached now: not of what was there already in the same way.
    Done(Vec<u32>),
    /// The kernel lets none in there in this way, and says so. Nothing is attached.
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

/// What the helper is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Command {
    /// Attach again what is held.
    Attach(Staging),
    /// Let the links that attach what is held be pinned where they are, and attach it to another cgroup, where nobody is.
    Displace {
        /// Whether that cgroup is then removed.
        removed: bool,
    },
    /// Say where links are pinned that attach what is held.
    Pinned,
    /// Say what is attached to the cgroup to which it attached last; to the agent's, if it did not yet.
    List,
    /// Detach what it has attached.
    Detach,
}

/// What the helper answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    /// Its first line: what it holds.
    Holds(Vec<HeldProgram>),
    /// To `attach` (what it attached) and `detach` (what it detached): ids.
    Done(Vec<u32>),
    /// To `pinned`: where the links are pinned. To `displace`: where those are that lead elsewhere now.
    Pinned(Vec<String>),
    /// To `list`.
    Attached(Vec<Attached>),
    /// To `attach`: the kernel does not permit it, in words.
    Refused(String),
    /// It could not.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_what_a_person_could_type_and_read() {
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
