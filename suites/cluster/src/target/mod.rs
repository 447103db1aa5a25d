//! A target under test, as a file of `suites/targets` describes it. That folder's README documents the fields.
//!
//! ```text
//!  suites/targets/NAME.yaml ─▶ Target ─┬─ features, deviations   claims of the target, wherever it runs
//!                                      ├─ lab                    a program on each node of the embedded lab
//!                                      └─ cluster                its installation on a cluster
//! ```
//!
//! Files: this one; `installation` (the part `cluster`); `program` (the part `lab`).

mod installation;
pub mod program;

use std::{collections::BTreeSet, num::NonZeroU32, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    Deviation,
    user_file::{self, MOST_BYTES},
};

pub use installation::{Agent, Api, Cni, Installation, Kind, KubeProxy, Step};
use program::Program;

/// Target files built into `plumbline`, by name.
const BUILT_IN: [(&str, &str); 10] = [
    ("reference", include_str!("../../../targets/reference.yaml")),
    (
        "kube-proxy-iptables",
        include_str!("../../../targets/kube-proxy-iptables.yaml"),
    ),
    (
        "kube-proxy-nftables",
        include_str!("../../../targets/kube-proxy-nftables.yaml"),
    ),
    ("cilium", include_str!("../../../targets/cilium.yaml")),
    (
        "cilium-kube-proxy",
        include_str!("../../../targets/cilium-kube-proxy.yaml"),
    ),
    (
        "calico-iptables",
        include_str!("../../../targets/calico-iptables.yaml"),
    ),
    ("calico-ebpf", include_str!("../../../targets/calico-ebpf.yaml")),
    ("antrea", include_str!("../../../targets/antrea.yaml")),
    ("kube-router", include_str!("../../../targets/kube-router.yaml")),
    (
        "ovn-kubernetes",
        include_str!("../../../targets/ovn-kubernetes.yaml"),
    ),
];

/// A target, with at least one of its two parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Names of the optional features that the target claims.
    #[serde(default)]
    pub features: BTreeSet<String>,
    /// Claims of the catalogue that the target is known to break.
    #[serde(default)]
    pub deviations: Vec<Deviation>,
    /// The most endpoints (an address and port each) that a node of the target can hold, of all Services together.
    #[serde(default, rename = "most-endpoints")]
    pub most_endpoints: Option<NonZeroU32>,
    /// The target as a program on each node of the lab.
    #[serde(default)]
    pub lab: Option<Program>,
    /// The target's installation on a cluster.
    #[serde(default)]
    pub cluster: Option<Installation>,
}

/// Why a target can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to use the target {name:?}: {why}")]
pub struct TargetError {
    /// Name or file of the target.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

impl Target {
    /// Names of the built-in targets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.into_iter().map(|(name, _)| name)
    }

    /// The file of a built-in target.
    #[must_use]
    pub fn file(name: &str) -> Option<&'static str> {
        let (_, text) = BUILT_IN.into_iter().find(|(known, _)| *known == name)?;
        Some(text)
    }

    /// Finds a target by its name, or by the path of its file (anything with a `/` or a `.`).
    ///
    /// # Errors
    /// No target has this name; the file can't be read, or is no target file.
    pub fn find(name: &str) -> Result<Self, TargetError> {
        let wrong = |why: String| TargetError {
            name: name.to_owned(),
            why,
        };
        if name.contains(['/', '.']) {
            let text = user_file::read(Path::new(name), MOST_BYTES);
            let text = text.map_err(|error| {
                wrong(format!(
                    "{error}; name the file of a target, or a target of `plumbline targets list`"
                ))
            })?;
            return Self::parse(&text).map_err(wrong);
        }
        match Self::file(name) {
            Some(text) => Self::parse(text).map_err(wrong),
            None => Err(wrong(format!(
                "there is no such target; known are {}",
                BUILT_IN.map(|(name, _)| name).join(", ")
            ))),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let target: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if target.lab.is_none() && target.cluster.is_none() {
            return Err(
                "expected a part lab, a part cluster or both, found neither: nothing says how to run it"
                    .to_owned(),
            );
        }
        if let Some(program) = &target.lab {
            program.check().map_err(|why| format!("lab: {why}"))?;
        }
        if let Some(installation) = &target.cluster {
            installation.check().map_err(|why| format!("cluster: {why}"))?;
        }
        Ok(target)
    }
}

/// The first unknown `${NAME}` in an argument.
fn unknown<'a>(argument: &'a str, known: &[&str]) -> Option<&'a str> {
    let names = argument.split("${").skip(1);
    names
        .map(|rest| rest.split('}').next().unwrap_or(rest))
        .find(|name| !known.contains(name))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_file_of_the_repository_is_a_target_that_is_built_in() {
        for name in Target::names() {
            Target::find(name).unwrap_or_else(|error| panic!("{error}"));
        }
        let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../targets")).expect("the folder");
        let mut found: Vec<String> = files
            .flatten()
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".yaml")?.to_owned()))
            .collect();
        found.sort();
        let mut names: Vec<&str> = Target::names().collect();
        names.sort_unstable();
        assert_eq!(found, names, "a file that is not built in is none");
    }

    #[test]
    fn a_target_that_is_the_cni_plugin_needs_a_cluster_without_one() {
        let without_cni = |installed: &Installation| installed.kind.cni == installation::Cni::None;
        for name in Target::names() {
            let Some(installed) = Target::find(name).expect("a target").cluster else {
                continue;
            };
            // With Calico, the agent is kube-proxy where Calico leaves Services to it.
            if installed.agent.daemon_set == "kube-proxy" {
                assert!(!installed.pod_network, "{name}");
            } else if without_cni(&installed) {
                assert!(
                    installed.pod_network,
                    "{name}: kind makes its cluster without a network of pods"
                );
            }
        }
    }

    #[test]
    fn what_is_no_target_is_named() {
        let lab = |rest: &str| format!("lab: {{program: p, cleanup: [], {rest}}}");
        Target::parse(&lab("run: [], ready: {port: 1, path: /}")).expect("a target");
        let cases = [
            ("{}".to_owned(), "found neither"),
            ("lab: {program: p}".to_owned(), "run"),
            (
                lab("run: ['${nodes}'], ready: {port: 1, path: /}"),
                "names \"nodes\"; expected one of ${kubeconfig}",
            ),
            (lab("run: [], ready: {port: 1, path: x}"), "begins with /"),
            (lab("runs: [], ready: {port: 1, path: /}"), "runs"),
            (
                lab("run: [], api: {further: ['${node}']}, ready: {port: 1, path: /}"),
                "names \"node\"; expected ${api}",
            ),
            (
                lab("run: [], variants: {loud: [-x]}, ready: {port: 1, path: /}"),
                "loud",
            ),
            (
                lab("run: [], variants: {other-release: [-x]}, ready: {port: 1, path: /}"),
                "expected it beside variants: other-release: { program: NAME }",
            ),
            (
                lab("run: [], other-release: {program: p, run: ['${nodes}']}, ready: {port: 1, path: /}"),
                "names \"nodes\"",
            ),
        ];
        for (text, part) in cases {
            let error = Target::parse(&text).expect_err("refused");
            assert!(error.contains(part), "{text}: {error}");
        }
        for (name, part) in [
            ("kube-proxy", "known are reference, "),
            ("./no.yaml", "No such file"),
            ("/dev/zero", "found a character device"),
        ] {
            let error = Target::find(name).expect_err("there is none").to_string();
            assert!(error.contains(name) && error.contains(part), "{error}");
        }
    }
}
