//! Targets: how a kind of agent is run, as a file of `suites/targets` says. Its README has the fields.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{LabError, sibling};
use crate::cluster::Deviation;

/// The files that are in every `plumbline`, by name.
const BUILT_IN: [(&str, &str); 3] = [
    ("reference", include_str!("../../../targets/reference.yaml")),
    (
        "kube-proxy-iptables",
        include_str!("../../../targets/kube-proxy-iptables.yaml"),
    ),
    (
        "kube-proxy-nftables",
        include_str!("../../../targets/kube-proxy-nftables.yaml"),
    ),
];

/// Names a folder with Kubernetes' own programs, kube-proxy among them.
pub const KUBERNETES: &str = "PLUMBLINE_KUBE_API";

/// What can stand in an argument as `${NAME}`.
const NAMES: [&str; 5] = ["kubeconfig", "node", "cgroup", "bpffs", "state"];

/// How an agent is run, cleaned up after and asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Name of its program.
    pub program: String,
    /// Programs that it calls, by name.
    #[serde(default)]
    pub tools: Vec<String>,
    /// What it asks of the kernel, in the order in which it is tried.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Optional features of the catalogue that it claims to have, by name.
    #[serde(default)]
    pub features: BTreeSet<String>,
    /// Claims of the catalogue that it is known not to keep.
    #[serde(default)]
    pub deviations: Vec<Deviation>,
    /// Arguments of a run.
    pub run: Vec<String>,
    /// Arguments with which it removes what it keeps on a node.
    pub cleanup: Vec<String>,
    /// Arguments with which it prints what it has programmed, if it can.
    #[serde(default)]
    pub dump: Option<Vec<String>>,
    /// Where it says that it is ready.
    pub ready: Ready,
}

/// Something that the kernel must offer, and a command that succeeds in a new network namespace if it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// Its name, and the option of the kernel's configuration.
    pub what: String,
    /// Program and arguments. Commands follow each other in one namespace.
    pub run: Vec<String>,
}

/// On a node's loopback, by HTTP; status 200 is yes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Port.
    pub port: u16,
    /// Path, such as `/readyz`.
    pub path: String,
}

/// What the names in arguments stand for on one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'a> {
    pub(super) kubeconfig: &'a Path,
    pub(super) node: &'a str,
    pub(super) cgroup: &'a str,
    pub(super) bpffs: &'a str,
    pub(super) state: &'a Path,
}

impl Target {
    /// One by its name, or by the path of its file (anything with a `/` or a `.` in it).
    ///
    /// # Errors
    /// There is none of this name; the file can't be read or is none of a target.
    pub fn find(name: &str) -> Result<Self, LabError> {
        if name.contains(['/', '.']) {
            let text = fs::read_to_string(name).map_err(|error| LabError::Target {
                name: name.to_owned(),
                why: error.to_string(),
            })?;
            return Self::parse(name, &text);
        }
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Self::parse(name, text),
            None => Err(LabError::Target {
                name: name.to_owned(),
                why: format!(
                    "there is no such target; known are {}",
                    BUILT_IN.map(|(name, _)| name).join(", ")
                ),
            }),
        }
    }

    fn parse(name: &str, text: &str) -> Result<Self, LabError> {
        let wrong = |why: String| LabError::Target {
            name: name.to_owned(),
            why,
        };
        let target: Self = serde_saphyr::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let arguments = target.run.iter().chain(&target.cleanup);
        for argument in arguments.chain(target.dump.iter().flatten()) {
            if let Some(unknown) = unknown(argument) {
                return Err(wrong(format!(
                    "{argument:?} names {unknown:?}; expected one of {}",
                    NAMES.map(|name| format!("${{{name}}}")).join(", ")
                )));
            }
        }
        if !target.ready.path.starts_with('/') {
            let found = &target.ready.path;
            return Err(wrong(format!(
                "expected a path that begins with / in ready, found {found:?}"
            )));
        }
        Ok(target)
    }

    /// Its own program: beside the running one, in the folder of Kubernetes' programs, or on the PATH.
    pub(super) fn program(&self) -> Result<PathBuf, LabError> {
        let kubernetes = || {
            let program = PathBuf::from(env::var_os(KUBERNETES)?).join(&self.program);
            program.is_file().then_some(program)
        };
        sibling(&self.program).or_else(|_| {
            kubernetes()
                .or_else(|| on_path(&self.program))
                .ok_or_else(|| LabError::NoProgram {
                    program: self.program.clone(),
                })
        })
    }

    /// Whether what it calls is there.
    pub(super) fn check(&self, label: &str) -> Result<(), LabError> {
        match self.tools.iter().find(|tool| on_path(tool).is_none()) {
            None => Ok(()),
            Some(tool) => Err(LabError::MissingTool {
                target: label.to_owned(),
                tool: tool.clone(),
            }),
        }
    }
}

impl Values<'_> {
    /// Arguments with the names replaced.
    pub(super) fn fill(&self, arguments: &[String]) -> Vec<String> {
        let values = [
            self.kubeconfig.as_os_str(),
            OsStr::new(self.node),
            OsStr::new(self.cgroup),
            OsStr::new(self.bpffs),
            self.state.as_os_str(),
        ];
        let fill = |argument: &String| {
            NAMES
                .iter()
                .zip(values)
                .fold(argument.clone(), |text, (name, value)| {
                    text.replace(&format!("${{{name}}}"), &value.to_string_lossy())
                })
        };
        arguments.iter().map(fill).collect()
    }
}

/// A program on the PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// The first name in an argument that stands for nothing.
fn unknown(argument: &str) -> Option<&str> {
    let names = argument.split("${").skip(1);
    names
        .map(|rest| rest.split('}').next().unwrap_or(rest))
        .find(|name| !NAMES.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_of_the_repository_can_be_read_and_filled() {
        let values = Values {
            kubeconfig: Path::new("/k"),
            node: "node1",
            cgroup: "/c",
            bpffs: "/b",
            state: Path::new("/s"),
        };
        for (name, _) in BUILT_IN {
            let target = Target::find(name).expect("it can be read");
            let filled = values.fill(&target.run);
            assert!(
                filled.iter().all(|argument| !argument.contains('$')),
                "{filled:?}"
            );
            assert!(filled.contains(&"--kubeconfig=/k".to_owned()), "{filled:?}");
        }
        let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../targets")).expect("the folder");
        let yaml = files.flatten().filter(|entry| {
            entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "yaml")
        });
        assert_eq!(
            yaml.count(),
            BUILT_IN.len(),
            "a file that is not built in is none"
        );
    }

    #[test]
    fn what_is_no_target_is_named() {
        let good = "{program: p, run: [], cleanup: [], ready: {port: 1, path: /}}";
        Target::parse("t", good).expect("a target");
        let cases = [
            ("{program: p}", "run"),
            (
                "{program: p, run: ['${nodes}'], cleanup: [], ready: {port: 1, path: /}}",
                "names \"nodes\"; expected one of ${kubeconfig}",
            ),
            (
                "{program: p, run: [], cleanup: [], ready: {port: 1, path: x}}",
                "begins with /",
            ),
            ("{program: p, runs: [], ready: {port: 1, path: /}}", "runs"),
        ];
        for (text, part) in cases {
            let error = Target::parse("t", text).expect_err("refused").to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (name, part) in [
            ("kube-proxy", "known are reference, "),
            ("./no.yaml", "No such file"),
        ] {
            let error = Target::find(name).expect_err("there is none").to_string();
            assert!(error.contains(name) && error.contains(part), "{error}");
        }
    }
}
