//! A target as a program of each node: the part `lab` of a target file. The README of `suites/targets` documents the
//! fields.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    net::SocketAddr,
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::unknown;
use crate::{ApiEndpoints, Variant};

/// Name of a further address in an argument, as `${NAME}`.
const API: &str = "api";
/// Names that the other arguments may use.
const NAMES: [&str; 5] = ["kubeconfig", "node", "cgroup", "bpffs", "state"];

/// How an agent is started, checked and cleaned up after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Name of the program.
    pub program: String,
    /// Names of the programs that it calls.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Kernel features that it needs, in the order of their checks.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// API endpoints that it documents, beside a kubeconfig with an address that is no Service's.
    #[serde(default)]
    pub api: Api,
    /// Arguments of the agent.
    pub run: Vec<String>,
    /// Additional arguments of each variant, except of the other release.
    #[serde(default)]
    pub variants: BTreeMap<Variant, Vec<String>>,
    /// The release that nodes are upgraded to.
    #[serde(default, rename = "other-release")]
    pub other_release: Option<OtherRelease>,
    /// Arguments of the clean-up of a node.
    pub cleanup: Vec<String>,
    /// Arguments that print what the agent has programmed.
    #[serde(default)]
    pub dump: Option<Vec<String>>,
    /// Arguments that print how what the agent has programmed differs from what the API lists; nothing where they agree.
    #[serde(default)]
    pub differences: Option<Vec<String>>,
    /// Arguments that print the version.
    #[serde(default)]
    pub version: Option<Vec<String>>,
    /// Readiness endpoint.
    pub ready: Ready,
}

/// Another release of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherRelease {
    /// Name of its program.
    pub program: String,
    /// Arguments of its agent, if they are not the same.
    #[serde(default)]
    pub run: Option<Vec<String>>,
}

/// A kernel feature, and a command that succeeds in a new network namespace where the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// Name of the feature, and its kernel configuration option.
    pub what: String,
    /// Program and arguments. Commands follow each other in one namespace.
    pub run: Vec<String>,
}

/// API endpoints that a target documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Api {
    /// The kubeconfig may name an address of a Service that the target serves itself.
    #[serde(default)]
    pub service: bool,
    /// Arguments for each further address, with `${api}` in its place.
    #[serde(default)]
    pub further: Option<Vec<String>>,
}

impl Api {
    /// The endpoints in the form that cases read.
    #[must_use]
    pub fn ways(&self) -> ApiEndpoints {
        ApiEndpoints {
            service: self.service,
            further: self.further.is_some(),
            shared: false,
        }
    }

    /// Arguments for further addresses; none where the target has no such option.
    #[must_use]
    pub fn further(&self, addresses: &[SocketAddr]) -> Vec<String> {
        let arguments = |address: &SocketAddr| {
            let name = format!("${{{API}}}");
            let fill = move |argument: &String| argument.replace(&name, &address.to_string());
            self.further.iter().flatten().map(fill).collect::<Vec<_>>()
        };
        addresses.iter().flat_map(arguments).collect()
    }
}

/// HTTP endpoint on the node's loopback; status 200 means ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Port.
    pub port: u16,
    /// Path, such as `/readyz`.
    pub path: String,
}

/// Values of the names in arguments, on one node.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// Path of the kubeconfig.
    pub kubeconfig: &'a Path,
    /// Name of the node.
    pub node: &'a str,
    /// Root of its cgroup v2 hierarchy.
    pub cgroup: &'a str,
    /// Its bpffs.
    pub bpffs: &'a str,
    /// State directory of the agent.
    pub state: &'a Path,
}

impl Program {
    /// The configurations in which it can be started on a node.
    #[must_use]
    pub fn configurations(&self) -> BTreeSet<Variant> {
        let other = self.other_release.as_ref().map(|_| Variant::OtherRelease);
        self.variants.keys().copied().chain(other).collect()
    }

    /// Whether all arguments can be filled in and the readiness endpoint is valid.
    ///
    /// # Errors
    /// What is wrong, as text.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.variants.contains_key(&Variant::OtherRelease) {
            return Err(
                "other-release is no variant with further arguments, as it is another program; expected it beside variants: \
                 other-release: { program: NAME }"
                    .to_owned(),
            );
        }
        let other = self.other_release.iter().filter_map(|other| other.run.as_ref());
        let run = self
            .run
            .iter()
            .chain(self.variants.values().chain(other).flatten());
        let arguments = run.chain(&self.cleanup);
        for argument in arguments.chain(self.dump.iter().chain(&self.differences).flatten()) {
            if let Some(unknown) = unknown(argument, &NAMES) {
                return Err(format!(
                    "{argument:?} names {unknown:?}; expected one of {}",
                    NAMES.map(|name| format!("${{{name}}}")).join(", ")
                ));
            }
        }
        for argument in self.api.further.iter().flatten() {
            if let Some(unknown) = unknown(argument, &[API]) {
                return Err(format!(
                    "{argument:?} names {unknown:?}; expected ${{{API}}} in api.further"
                ));
            }
        }
        if !self.ready.path.starts_with('/') {
            let found = &self.ready.path;
            return Err(format!(
                "expected a path that begins with / in ready, found {found:?}"
            ));
        }
        Ok(())
    }
}

impl Values<'_> {
    /// Replaces the names in arguments.
    #[must_use]
    pub fn fill(&self, arguments: &[String]) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_further_address_has_arguments_of_its_own() {
        let text = "{further: [--at, 'https://${api}']}";
        let api: Api = serde_saphyr::from_str(text).expect("ways");
        assert_eq!((api.ways().service, api.ways().further), (false, true));
        let addresses = ["10.0.0.1:1", "[fd00::1]:2"].map(|text| text.parse().expect("an address"));
        let expected = ["--at", "https://10.0.0.1:1", "--at", "https://[fd00::1]:2"];
        assert_eq!(api.further(&addresses), expected);
        let none = Api::default();
        assert!(none.further(&addresses).is_empty() && !none.ways().further);
    }

    #[test]
    fn names_in_arguments_are_filled() {
        let values = Values {
            kubeconfig: Path::new("/k"),
            node: "node1",
            cgroup: "/c",
            bpffs: "/b",
            state: Path::new("/s"),
        };
        let arguments =
            ["--a=${kubeconfig}", "${node}:${cgroup}", "${bpffs}${state}", "x"].map(str::to_owned);
        assert_eq!(values.fill(&arguments), ["--a=/k", "node1:/c", "/b/s", "x"]);
    }
}
