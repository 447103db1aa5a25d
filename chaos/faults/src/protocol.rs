//! Lines between a fault and its helper on the node: one JSON object each, one answer for each command.

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
    /// Attach again, with `BPF_PROG_ATTACH` and `BPF_F_ALLOW_MULTI`, what is held and no longer attached.
    Attach,
    /// Say what is attached.
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
    /// To `list`.
    Attached(Vec<Attached>),
    /// It could not.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_what_a_person_could_type_and_read() {
        assert_eq!(serde_json::to_string(&Command::Attach).unwrap(), "\"attach\"");
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
