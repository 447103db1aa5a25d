//! How a target is installed on a cluster, and where its agent is there: the part `cluster` of its file.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::unknown;

/// Programs that install on a cluster; both are told which by the variable `KUBECONFIG`.
const PROGRAMS: [&str; 2] = ["kubectl", "helm"];
/// What can stand in an argument or a manifest of a step, as `${NAME}`.
const NAMES: [&str; 2] = ["api-host", "api-port"];

/// How it is installed, found, cleaned up after and removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Installation {
    /// The version that is installed; none, if it comes with the cluster or with this repository.
    #[serde(default)]
    pub version: Option<String>,
    /// What a cluster that is made for it by kind has instead of kind's own.
    #[serde(default)]
    pub kind: Kind,
    /// What installs it, in this order, on a cluster whose nodes are there (and, without a network of pods, not ready).
    /// Nothing, if the cluster brings it along.
    #[serde(default)]
    pub install: Vec<Step>,
    /// Where it runs. It is installed when all of its pods are ready.
    pub agent: Agent,
    /// Program and arguments that remove what it keeps on a node, while it does not run there. They run in a pod as the
    /// agent's (its image, mounts and rights), in the place of the agent's own.
    #[serde(default)]
    pub clean: Option<Vec<String>>,
    /// Program and arguments that print what it has programmed. They run in the agent's container.
    #[serde(default)]
    pub dump: Option<Vec<String>>,
    /// What it pins below the bpffs of a node, and nobody else: folders and files, with `*` for any part of a path, such as
    /// `tc/globals/NAME_*`. Cases whose fault is that pins are lost take nothing else away from nodes that are somebody's.
    #[serde(default)]
    pub pins: Vec<String>,
    /// Its agents are the network of pods: on a node without one, pods with a network of their own don't start.
    #[serde(default)]
    pub pod_network: bool,
    /// What removes it from the cluster, in this order; nothing, if the cluster goes with it.
    #[serde(default)]
    pub uninstall: Vec<Step>,
}

/// What a cluster made by kind is like. The default is kind's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Kind {
    /// The network of pods.
    #[serde(default)]
    pub cni: Cni,
    /// What translates Services from the beginning.
    #[serde(default)]
    pub kube_proxy: KubeProxy,
    /// Addresses of pods, of which the target's configuration knows; kind's own, if there are none.
    #[serde(default)]
    pub pod_subnet: Option<IpNet>,
}

/// The network of pods of a cluster made by kind (`networking.disableDefaultCNI`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cni {
    /// kind's own.
    #[default]
    Kindnet,
    /// None: the target brings its own.
    None,
}

/// kube-proxy of a cluster made by kind (`networking.kubeProxyMode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KubeProxy {
    /// kind's own mode.
    #[default]
    Iptables,
    /// By nftables.
    Nftables,
    /// None: the target stands in its place.
    None,
}

/// Something that is done to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// kubectl or helm, with arguments; in the root of this repository.
    Run(Vec<String>),
    /// Manifests, by server-side apply that takes over the fields of others (`--force-conflicts`).
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

/// Where nodes reach an API server: an address that is no Service's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Agent {
    /// The selector of its pods, as a list by the API takes it.
    #[must_use]
    pub fn selector(&self) -> String {
        let labels = self.labels.iter().map(|(name, value)| format!("{name}={value}"));
        labels.collect::<Vec<_>>().join(",")
    }
}

impl Step {
    /// The same with `${api-host}` and `${api-port}` replaced.
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
    /// Whether it can be done and says exactly what is installed.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        let version = self.version.as_deref();
        for step in self.install.iter().chain(&self.uninstall) {
            match step {
                Step::Run(argv) => command(argv, version)?,
                Step::Apply(manifests) => objects(manifests)?,
            }
        }
        for (field, argv) in [("clean", &self.clean), ("dump", &self.dump)] {
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

/// Whether a pattern names something: one that begins with `*` has everybody's. Names of pins have no dots (bpffs).
fn names_pins(pattern: &str) -> bool {
    let is_known = |letter: char| letter.is_ascii_alphanumeric() || "_-/*".contains(letter);
    pattern.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && !["tc", "tc/", "tc/*", "tc/globals", "tc/globals/", "tc/globals/*"].contains(&pattern)
        && pattern.chars().all(is_known)
}

/// A command that can be run, and that installs the same thing every time.
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

/// Options of helm that have no value, after which the chart may stand.
const ALONE: [&str; 6] = [
    "--install",
    "-i",
    "--generate-name",
    "-g",
    "--wait",
    "--create-namespace",
];

/// Whether the chart is a folder or a file here (`./…`, `../…`, `/…`), which is what it is: `--version` picks one of a repository's.
fn has_local_chart(arguments: &[String]) -> bool {
    arguments.windows(2).any(|pair| {
        let is_value = pair[0].starts_with('-') && !ALONE.contains(&pair[0].as_str());
        !is_value && ["./", "../", "/"].iter().any(|start| pair[1].starts_with(start))
    })
}

/// Manifests that can be applied.
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

/// Whether what stands in these texts as `${NAME}` is known.
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
        let nobody = "agent: {namespace: n, daemon-set: d, container: c, labels: {}}";
        let nobody: Installation = serde_saphyr::from_str(nobody).expect("an installation");
        assert!(
            nobody
                .check()
                .expect_err("nobody's labels")
                .contains("labels of agent, found labels empty")
        );
    }
}
