//! How a target is run as a program of each node: the part `lab` of its file. README of `suites/targets` has the fields.

use std::{collections::BTreeMap, ffi::OsStr, net::SocketAddr, path::Path};

use serde::{Deserialize, Serialize};

use super::unknown;
use crate::{ApiEndpoints, Variant};

/// What stands in an argument for a further address, as `${NAME}`.
const API: &str = "api";
/// What can stand in another one.
const NAMES: [&str; 5] = ["kubeconfig", "node", "cgroup", "bpffs", "state"];

/// How an agent is run, cleaned up after and asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its name.
    pub program: String,
    /// Programs that it calls, by name.
    #[serde(default)]
    pub tools: Vec<String>,
    /// What it asks of the kernel, in the order in which it is tried.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// ApiEndpoints to the API that it documents, beside a kubeconfig with an address that is no Service's.
    #[serde(default)]
    pub api: Api,
    /// Arguments of a run.
    pub run: Vec<String>,
    /// Its other configurations: arguments that follow those of a run.
    #[serde(default)]
    pub variants: BTreeMap<Variant, Vec<String>>,
    /// Arguments with which it removes what it keeps on a node.
    pub cleanup: Vec<String>,
    /// Arguments with which it prints what it has programmed, if it can.
    #[serde(default)]
    pub dump: Option<Vec<String>>,
    /// Arguments with which it prints its version, if it can.
    #[serde(default)]
    pub version: Option<Vec<String>>,
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

/// ApiEndpoints to the API that a target documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Api {
    /// Its kubeconfig may name an address of a Service that it serves itself.
    #[serde(default)]
    pub service: bool,
    /// Arguments for each further address, which they name as `${api}`.
    #[serde(default)]
    pub further: Option<Vec<String>>,
}

impl Api {
    /// As cases see them.
    #[must_use]
    pub fn ways(&self) -> ApiEndpoints {
        ApiEndpoints {
            service: self.service,
            further: self.further.is_some(),
            shared: false,
        }
    }

    /// Arguments for further addresses; none where it has no such way.
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
pub struct Values<'a> {
    /// Path of a kubeconfig.
    pub kubeconfig: &'a Path,
    /// Name of the node.
    pub node: &'a str,
    /// Root of its cgroup v2 hierarchy.
    pub cgroup: &'a str,
    /// Its bpffs.
    pub bpffs: &'a str,
    /// A folder for what it keeps.
    pub state: &'a Path,
}

impl Program {
    /// Whether its arguments can be filled and its address can be asked.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        let run = self.run.iter().chain(self.variants.values().flatten());
        let arguments = run.chain(&self.cleanup);
        for argument in arguments.chain(self.dump.iter().flatten()) {
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
    /// Arguments with the names replaced.
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
