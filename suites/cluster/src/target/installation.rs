//! How a target is installed on a cluster, and where its agents are: the part `cluster` of a target file.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::unknown;

/// Programs that may install a target; both read the cluster from the variable `KUBECONFIG`.
const PROGRAMS: [&str; 2] = ["kubectl", "helm"];
/// Names that steps may use as `${NAME}`.
const NAMES: [&str; 2] = ["api-host", "api-port"];

/// Installation, agents, clean-up and removal of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Installation {
    /// The installed version; none, if the target comes with the cluster or with this repository.
    #[serde(default)]
    pub version: Option<String>,
    /// Settings of a kind cluster for this target that differ from kind's defaults.
    #[serde(default)]
    pub kind: Kind,
    /// Installation steps, in order, on a cluster whose nodes exist (and are not Ready, without a CNI plugin). None,
    /// if the cluster already contains the target.
    #[serde(default)]
    pub install: Vec<Step>,
    /// The agents. The target is installed when all their pods are Ready.
    pub agent: Agent,
    /// Clean-up command for a node without a running agent. It runs in a pod with the agent's image, mounts and
    /// rights, in place of the agent's own command.
    #[serde(default)]
    pub clean: Option<Vec<String>>,
    /// Command that prints what the agent has programmed, in the agent's container.
    #[serde(default)]
    pub dump: Option<Vec<String>>,
    /// Command that prints how what the agent has programmed differs from what the API lists, in the agent's container;
    /// nothing where they agree.
    #[serde(default)]
    pub differences: Option<Vec<String>>,
    /// Pins of this target alone below a node's bpffs: folders and files, with `*` for any part of a path, such as
    /// `tc/globals/NAME_*`. On nodes of users, cases that lose pins remove only these.
    #[serde(default)]
    pub pins: Vec<String>,
    /// The agents are the CNI plugin: without an agent, pods with a network of their own don't start on a node.
    #[serde(default)]
    pub pod_network: bool,
    /// Removal steps, in order; none, if the target is removed with the cluster.
    #[serde(default)]
    pub uninstall: Vec<Step>,
}

/// Settings of a cluster made by kind. The defaults are kind's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Kind {
    /// The network of pods.
    #[serde(default)]
    pub cni: Cni,
    /// Service proxy of the new cluster.
    #[serde(default)]
    pub kube_proxy: KubeProxy,
    /// Pod address ranges that the target's configuration names; kind's own, if there are none.
    #[serde(default)]
    pub pod_subnet: Option<IpNet>,
}

/// CNI plugin of a cluster made by kind (`networking.disableDefaultCNI`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cni {
    /// kind's own.
    #[default]
    Kindnet,
    /// None: the target is the CNI plugin.
    None,
}

/// kube-proxy of a cluster made by kind (`networking.kubeProxyMode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KubeProxy {
    /// kind's own mode.
    #[default]
    Iptables,
    /// nftables mode.
    Nftables,
    /// None: the target replaces it.
    None,
}

/// A step of an installation or a removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// kubectl or helm with arguments, run in the root of this repository.
    Run(Vec<String>),
    /// Manifests, applied server-side with `--force-conflicts`.
    Apply(String),
}

/// The agent: a pod on every node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Agent {
    /// Its namespace.
    pub namespace: String,
    /// Its DaemonSet.
    pub daemon_set: String,
    /// The container that translates Services.
    pub container: String,
    /// Labels of its pods.
    pub labels: BTreeMap<String, String>,
}

/// Address of an API server for nodes, which is no Service's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// Host name or IP address.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Agent {
    /// Label selector of the agents' pods.
    #[must_use]
    pub fn selector(&self) -> String {
        let labels = self.labels.iter().map(|(name, value)| format!("{name}={value}"));
        labels.collect::<Vec<_>>().join(",")
    }
}

impl Step {
    /// A copy with `${api-host}` and `${api-port}` replaced.
    #[must_use]
    pub fn filled(&self, api: &Api) -> Self {
        let fill = |text: &String| {
            let text = text.replace("${api-host}", &api.host);
            text.replace("${api-port}", &api.port.to_string())
        };
        match self {
            Self::Run(argv) => Self::Run(argv.iter().map(fill).collect()),
            Self::Apply(manifests) => Self::Apply(fill(manifests)),
        }
    }
}

impl Installation {
    /// Whether the steps can be executed and name exact versions.
    ///
    /// # Errors
    /// What is wrong, as text.
    pub(super) fn check(&self) -> Result<(), String> {
        let version = self.version.as_deref();
        for step in self.install.iter().chain(&self.uninstall) {
            match step {
                Step::Run(argv) => command(argv, version)?,
                Step::Apply(manifests) => objects(manifests)?,
            }
        }
        for (field, argv) in [
            ("clean", &self.clean),
            ("dump", &self.dump),
            ("differences", &self.differences),
        ] {
            if argv.as_ref().is_some_and(Vec::is_empty) {
                return Err(format!(
                    "expected a program and its arguments in {field}, found nothing"
                ));
            }
        }
        if let Some(found) = self.pins.iter().find(|pins| !names_pins(pins)) {
            return Err(format!(
                "expected paths below the bpffs that begin with a name in pins (`folder`, `tc/globals/NAME_*`), found {found:?}"
            ));
        }
        if self.kind.cni == Cni::None && self.install.is_empty() {
            return Err(
                "expected steps in install, as kind.cni is none: without a network no pod of it runs"
                    .to_owned(),
            );
        }
        let agent = &self.agent;
        let empty = [
            ("namespace", agent.namespace.is_empty()),
            ("daemon-set", agent.daemon_set.is_empty()),
            ("container", agent.container.is_empty()),
            ("labels", agent.labels.is_empty()),
        ];
        match empty.iter().find(|(_, is_empty)| *is_empty) {
            Some((field, _)) => Err(format!(
                "expected namespace, daemon-set, container and labels of agent, found {field} empty"
            )),
            None => Ok(()),
        }
    }
}

/// Whether a pattern is specific: one that begins with `*` would match pins of other owners. Names of pins have no
/// dots (bpffs).
fn names_pins(pattern: &str) -> bool {
    let is_known = |letter: char| letter.is_ascii_alphanumeric() || "_-/*".contains(letter);
    pattern.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && !["tc", "tc/", "tc/*", "tc/globals", "tc/globals/", "tc/globals/*"].contains(&pattern)
        && pattern.chars().all(is_known)
}

/// Checks that a command can be run, and installs the same thing every time.
fn command(argv: &[String], version: Option<&str>) -> Result<(), String> {
    let [program, arguments @ ..] = argv else {
        return Err("expected a program and its arguments in run, found nothing".to_owned());
    };
    if !PROGRAMS.contains(&program.as_str()) {
        return Err(format!(
            "expected one of {} in run, found {program:?}",
            PROGRAMS.join(", ")
        ));
    }
    names(arguments)?;
    if program == "helm" {
        let installs = arguments
            .first()
            .is_some_and(|verb| ["install", "upgrade"].contains(&verb.as_str()));
        let is_pinned = arguments.iter().any(|argument| argument == "--version");
        return if installs && !is_pinned && !has_local_chart(arguments) {
            Err(format!(
                "expected --version, as charts change without it, or a chart that is a local path (./CHART): {}",
                argv.join(" ")
            ))
        } else {
            Ok(())
        };
    }
    for url in arguments.iter().filter(|argument| argument.contains("://")) {
        let version = version.ok_or_else(|| format!("expected a version, as it is installed from {url}"))?;
        if !url.starts_with("https://") || !url.contains(version) {
            return Err(format!(
                "expected https and the version {version} in what is installed: {url}"
            ));
        }
    }
    Ok(())
}

/// Options of helm without a value, which the chart may follow.
const ALONE: [&str; 6] = [
    "--install",
    "-i",
    "--generate-name",
    "-g",
    "--wait",
    "--create-namespace",
];

/// Whether the chart is a local folder or file (`./…`, `../…`, `/…`), which has no `--version`: that selects one of a
/// repository.
fn has_local_chart(arguments: &[String]) -> bool {
    arguments.windows(2).any(|pair| {
        let is_value = pair[0].starts_with('-') && !ALONE.contains(&pair[0].as_str());
        !is_value && ["./", "../", "/"].iter().any(|start| pair[1].starts_with(start))
    })
}

/// Checks that manifests can be applied.
fn objects(manifests: &str) -> Result<(), String> {
    names(&[manifests.to_owned()])?;
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(manifests)
        .map_err(|error| format!("expected manifests in apply: {error}"))?;
    let is_object = |document: &serde_json::Value| {
        ["/apiVersion", "/kind", "/metadata/name"]
            .iter()
            .all(|field| document.pointer(field).is_some_and(serde_json::Value::is_string))
    };
    match documents.iter().find(|document| !is_object(document)) {
        None if documents.is_empty() => Err("expected manifests in apply, found nothing".to_owned()),
        None => Ok(()),
        Some(other) => Err(format!(
            "expected apiVersion, kind and metadata.name of each object in apply, found {other}"
        )),
    }
}

/// Checks that every `${NAME}` in these texts is known.
fn names(texts: &[String]) -> Result<(), String> {
    match texts.iter().find_map(|text| unknown(text, &NAMES)) {
        None => Ok(()),
        Some(found) => Err(format!(
            "a step names {found:?}; expected one of {}",
            NAMES.map(|name| format!("${{{name}}}")).join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(rest: &str) -> Result<Installation, String> {
        let agent = "agent: {namespace: n, daemon-set: d, container: c, labels: {app: d, role: agent}}";
        let installation: Installation =
            serde_saphyr::from_str(&format!("{agent}\n{rest}")).map_err(|error| error.to_string())?;
        installation.check().map(|()| installation)
    }

    #[test]
    fn what_it_leaves_out_is_kinds_own() {
        let installation = parsed("").expect("an installation");
        assert_eq!(installation.kind, Kind::default());
        assert_eq!(
            (installation.kind.cni, installation.kind.kube_proxy),
            (Cni::Kindnet, KubeProxy::Iptables)
        );
        assert_eq!(installation.agent.selector(), "app=d,role=agent");
        assert!(installation.install.is_empty() && installation.clean.is_none());
    }

    #[test]
    fn steps_learn_where_an_api_server_answers() {
        let text = "install: [{run: [helm, upgrade, x, --version, '1', 'host=${api-host}:${api-port}']}, \
                    {apply: '{apiVersion: v1, kind: ConfigMap, metadata: {name: \"${api-host}\"}}'}]";
        let api = Api {
            host: "control-plane".to_owned(),
            port: 6443,
        };
        let steps: Vec<Step> = parsed(text).expect("an installation").install;
        let filled: Vec<Step> = steps.iter().map(|step| step.filled(&api)).collect();
        let Step::Run(argv) = &filled[0] else {
            panic!("{filled:?}")
        };
        assert_eq!(argv.last().map(String::as_str), Some("host=control-plane:6443"));
        let expected = "{apiVersion: v1, kind: ConfigMap, metadata: {name: \"control-plane\"}}";
        assert_eq!(filled[1], Step::Apply(expected.to_owned()));
    }

    #[test]
    fn what_installs_something_else_every_time_or_nothing_is_named() {
        let url = "https://example.org/v1.2.3/all.yaml";
        parsed(&format!(
            "version: v1.2.3\ninstall: [{{run: [kubectl, apply, -f, '{url}']}}]"
        ))
        .expect("pinned");
        for local in [
            "x, ./chart",
            "x, ../x/chart, --values, v.yaml",
            "--generate-name, /x.tgz",
        ] {
            parsed(&format!("install: [{{run: [helm, install, {local}]}}]")).expect(local);
        }
        for (text, part) in [
            (
                format!("install: [{{run: [kubectl, apply, -f, '{url}']}}]"),
                "expected a version",
            ),
            (
                format!("version: v1.2.4\ninstall: [{{run: [kubectl, apply, -f, '{url}']}}]"),
                "the version v1.2.4",
            ),
            (
                format!(
                    "version: v1.2.3\ninstall: [{{run: [kubectl, apply, -f, '{}']}}]",
                    url.replace("https", "http")
                ),
                "expected https",
            ),
            (
                "install: [{run: [helm, install, x]}]".to_owned(),
                "expected --version",
            ),
            (
                "install: [{run: [helm, install, x, oci://h/x, --values, ./x.yaml]}]".to_owned(),
                "a local path",
            ),
            ("install: [{run: [sh, -c, x]}]".to_owned(), "kubectl, helm"),
            ("uninstall: [{run: []}]".to_owned(), "found nothing"),
            (
                "install: [{run: [kubectl, '${node}']}]".to_owned(),
                "names \"node\"; expected one of ${api-host}",
            ),
            ("install: [{apply: '{kind: Pod}'}]".to_owned(), "apiVersion"),
            ("install: [{apply: ''}]".to_owned(), "in apply"),
            ("install: [{delete: x}]".to_owned(), "delete"),
            ("clean: []".to_owned(), "in clean"),
            ("pins: [a, '*']".to_owned(), "in pins"),
            ("pins: [/sys/fs/bpf/a]".to_owned(), "\"/sys/fs/bpf/a\""),
            ("pins: [../a]".to_owned(), "\"../a\""),
            ("pins: [tc/globals]".to_owned(), "\"tc/globals\""),
            ("kind: {cni: none}".to_owned(), "kind.cni is none"),
            ("kind: {cni: flannel}".to_owned(), "flannel"),
            ("kind: {pod-subnet: 10.0.0.0/99}".to_owned(), "invalid"),
        ] {
            let error = parsed(&text).expect_err(&text);
            assert!(error.contains(part), "{text}: {error}");
        }
        let unlabelled = "agent: {namespace: n, daemon-set: d, container: c, labels: {}}";
        let unlabelled: Installation = serde_saphyr::from_str(unlabelled).expect("an installation");
        assert!(
            unlabelled
                .check()
                .expect_err("empty labels")
                .contains("labels of agent, found labels empty")
        );
    }
}
