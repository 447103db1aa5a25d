//! The installation of a target in the formats of other programs: a configuration for kind, a script for a shell.

use std::fmt::Write as _;

use anyhow::Context as _;
use cluster::target::{Api, Cni, Installation, KubeProxy, Step};
use lab::IpFamilies;

/// Limit until the agents of all nodes are ready, including the pull of their images.
const READY: &str = "600s";

/// `HOST:PORT`.
///
/// # Errors
/// The text has another form; the error describes it.
pub(super) fn api(text: &str) -> Result<Api, String> {
    let wrong = || format!("expected HOST:PORT, such as own-control-plane:6443, found {text}");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let is_bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    if host.is_empty() || is_bare_ipv6 {
        return Err(wrong());
    }
    Ok(Api {
        host: host.to_owned(),
        port: port.parse().map_err(|_| wrong())?,
    })
}

/// Nodes of a kind cluster that its target's file leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KindNodes {
    /// Number of nodes, including the control plane's.
    pub(crate) count: u8,
    pub(crate) families: IpFamilies,
}

impl Default for KindNodes {
    /// A control plane and two workers, of IPv4.
    fn default() -> Self {
        Self {
            count: 3,
            families: IpFamilies::Ipv4,
        }
    }
}

/// The configuration (<https://kind.sigs.k8s.io/docs/user/configuration/>) without a name: the caller of kind chooses
/// one.
pub(crate) fn kind(installation: &Installation, nodes: KindNodes) -> String {
    let kind = &installation.kind;
    let mut text = "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnetworking:\n".to_owned();
    text += match nodes.families {
        IpFamilies::Ipv4 => "",
        IpFamilies::Ipv6 => "  ipFamily: ipv6\n",
        IpFamilies::Dual => "  ipFamily: dual\n",
    };
    text += match kind.kube_proxy {
        KubeProxy::Iptables => "  kubeProxyMode: iptables\n",
        KubeProxy::Nftables => "  kubeProxyMode: nftables\n",
        KubeProxy::None => "  kubeProxyMode: none\n",
    };
    if kind.cni == Cni::None {
        text += "  disableDefaultCNI: true\n";
    }
    if let Some(subnet) = kind.pod_subnet {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  podSubnet: {subnet}");
    }
    text += "nodes:\n- role: control-plane\n";
    text + &"- role: worker\n".repeat(usize::from(nodes.count).saturating_sub(1))
}

/// The script: one function, which its last line calls. A shell that reads the script from a pipe runs all of it or, if
/// the pipe ends early, nothing; and no step reads the rest of the script as its stdin.
///
/// # Errors
/// A step contains NUL, which a shell cannot express.
pub(crate) fn install(name: &str, installation: &Installation, api: &Api) -> anyhow::Result<String> {
    let version = installation.version.as_deref().unwrap_or_default();
    let mut text = format!("#!/bin/sh\n# Installs {}.\n", line(&[name, version].join(" ")));
    text += "set -eux\nsteps() {\n";
    for step in &installation.install {
        match step.filled(api) {
            Step::Run(argv) => text += &command(&argv)?,
            Step::Apply(manifests) => {
                let end = delimiter(&manifests);
                let apply = "kubectl apply --server-side --force-conflicts --filename -";
                let newline = if manifests.ends_with('\n') { "" } else { "\n" };
                let _ = write!(text, "{apply} <<'{end}'\n{manifests}{newline}{end}");
            }
        }
        text += "\n";
    }
    let agent = &installation.agent;
    text += &command(&[
        "kubectl".to_owned(),
        "rollout".to_owned(),
        "status".to_owned(),
        format!("--timeout={READY}"),
        format!("--namespace={}", agent.namespace),
        format!("daemonset/{}", agent.daemon_set),
    ])?;
    Ok(text + "\n}\nsteps </dev/null\n")
}

fn command(argv: &[String]) -> anyhow::Result<String> {
    shlex::try_join(argv.iter().map(String::as_str))
        .with_context(|| {
            let program = argv.first().map_or("", String::as_str);
            format!("expected a command that a shell can run, found a NUL in the arguments of {program}: remove it from the step")
        })
}

/// Text of a comment, on one line.
fn line(text: &str) -> String {
    text.trim().replace(char::is_control, " ")
}

/// A line that the text does not contain.
fn delimiter(text: &str) -> String {
    let mut end = "MANIFESTS".to_owned();
    while text.lines().any(|line| line == end) {
        end.push('_');
    }
    end
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write as _,
        os::unix::fs::PermissionsExt as _,
        path::Path,
        process::{Command, Stdio},
    };

    use cluster::target::Target;

    use super::*;

    /// A program that records its arguments, one a line, and its stdin if the arguments name it.
    const NOTING: &str = r#"#!/bin/sh
{
  printf '<%s>\n' "${0##*/}" "$@"
  for argument; do last=$argument; done
  if [ "$last" = - ]; then cat; fi
} >>"$NOTES"
if [ "$1" = "$FAILING" ]; then exit 7; fi
"#;

    /// The calls of a shell that reads the script from a pipe, and whether it succeeded.
    fn called(script: &str, folder: &Path, failing: &str) -> (String, bool) {
        for program in ["kubectl", "helm"] {
            let path = folder.join(program);
            fs::write(&path, NOTING).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let notes = folder.join("notes");
        fs::write(&notes, "").unwrap();
        let mut shell = Command::new("/bin/sh")
            .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
            .env("NOTES", &notes)
            .env("FAILING", failing)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let ended_well = shell.wait().unwrap().success();
        (fs::read_to_string(notes).unwrap(), ended_well)
    }

    fn noted(argv: &[&str]) -> String {
        argv.iter().map(|argument| format!("<{argument}>\n")).collect()
    }

    #[test]
    fn a_shell_calls_the_steps_of_the_file_and_then_waits_for_the_agents() {
        let folder = tempfile::tempdir().unwrap();
        let api = api("own-control-plane:6443").unwrap();
        for name in Target::names() {
            let installation = Target::find(name).unwrap().cluster.unwrap();
            let mut expected = String::new();
            for step in &installation.install {
                match step.filled(&api) {
                    Step::Run(argv) => {
                        expected += &noted(&argv.iter().map(String::as_str).collect::<Vec<_>>());
                    }
                    Step::Apply(manifests) => {
                        expected += &noted(&[
                            "kubectl",
                            "apply",
                            "--server-side",
                            "--force-conflicts",
                            "--filename",
                            "-",
                        ]);
                        expected += &manifests;
                    }
                }
            }
            expected += &noted(&[
                "kubectl",
                "rollout",
                "status",
                "--timeout=600s",
                &format!("--namespace={}", installation.agent.namespace),
                &format!("daemonset/{}", installation.agent.daemon_set),
            ]);
            let script = install(name, &installation, &api).unwrap();
            let (found, ended_well) = called(&script, folder.path(), "none");
            assert_eq!(found, expected, "{script}");
            assert!(ended_well && !found.contains("${"), "{script}");
        }
    }

    #[test]
    fn a_step_that_fails_is_the_last_and_half_a_script_does_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let installation = Target::find("cilium").unwrap().cluster.unwrap();
        let script = install("cilium", &installation, &api("h:1").unwrap()).unwrap();
        let (found, ended_well) = called(&script, folder.path(), "upgrade");
        assert!(!ended_well && found.starts_with("<helm>") && !found.contains("<kubectl>"));
        let half = script.split_once("kubectl rollout").unwrap().0;
        assert_eq!(called(half, folder.path(), "none"), (String::new(), false));
    }

    #[test]
    fn what_a_shell_would_read_otherwise_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let mut installation = Target::find("cilium").unwrap().cluster.unwrap();
        let manifests = "a: |\n  $HOME `x` \"'\nMANIFESTS\nMANIFESTS_\nb: c";
        installation.version = Some("1\nfalse".to_owned());
        installation.install = vec![
            Step::Run(vec![
                "kubectl".to_owned(),
                "it's $HOME; false".to_owned(),
                String::new(),
            ]),
            Step::Apply(manifests.to_owned()),
        ];
        let script = install("x", &installation, &api("h:1").unwrap()).unwrap();
        let (found, ended_well) = called(&script, folder.path(), "none");
        assert!(ended_well, "{script}");
        assert!(
            found.starts_with("<kubectl>\n<it's $HOME; false>\n<>\n<kubectl>\n"),
            "{found}"
        );
        assert!(
            found.contains(&format!("<->\n{manifests}\n<kubectl>\n<rollout>")),
            "{found}"
        );
        installation.install = vec![Step::Run(vec!["kubectl".to_owned(), "\0".to_owned()])];
        assert!(install("x", &installation, &api("h:1").unwrap()).is_err());
    }

    #[test]
    fn a_cluster_of_kind_is_as_the_file_says() {
        for name in Target::names() {
            let installation = Target::find(name).unwrap().cluster.unwrap();
            let found: serde_json::Value =
                serde_saphyr::from_str(&kind(&installation, KindNodes::default())).unwrap();
            let said = serde_json::to_value(&installation.kind).unwrap();
            assert_eq!(found["networking"]["kubeProxyMode"], said["kube-proxy"], "{name}");
            assert_eq!(found["networking"]["podSubnet"], said["pod-subnet"], "{name}");
            let without = found["networking"].get("disableDefaultCNI").is_some();
            assert_eq!(without, said["cni"] == "none", "{name}");
            assert_eq!(found["nodes"].as_array().unwrap().len(), 3, "{name}");
        }
    }

    #[test]
    fn a_run_chooses_the_families_and_the_number_of_nodes() {
        let installation = Target::find("kube-proxy-nftables").unwrap().cluster.unwrap();
        let nodes = KindNodes {
            count: 2,
            families: IpFamilies::Dual,
        };
        assert_eq!(
            kind(&installation, nodes),
            "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnetworking:\n  ipFamily: dual\n  kubeProxyMode: nftables\n\
             nodes:\n- role: control-plane\n- role: worker\n"
        );
        assert!(!kind(&installation, KindNodes::default()).contains("ipFamily"));
    }

    #[test]
    fn where_an_api_server_is_has_a_host_and_a_port() {
        let found = api("[fc00::2]:6443").unwrap();
        assert_eq!((found.host.as_str(), found.port), ("[fc00::2]", 6443));
        for wrong in ["host", ":6443", "host:", "host:65536", "fc00::2:6443"] {
            let error = api(wrong).unwrap_err();
            assert!(error.contains("expected HOST:PORT"), "{wrong}: {error}");
        }
    }
}
