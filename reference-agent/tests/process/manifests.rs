//! The manifests say what the program takes, and agree with each other.

use std::{fs, process::Command};

use k8s_openapi::{api::core::v1::Probe, apimachinery::pkg::util::intstr::IntOrString};

use crate::{
    manifest::{self, Manifest},
    node::PROGRAM,
};

/// What `reference-agent run` takes them for, one `key: value` a line.
fn effective(manifest: &Manifest) -> String {
    let config = manifest.config.data.as_ref().expect("data");
    let [(name, text)] = config.iter().collect::<Vec<_>>()[..] else {
        panic!("one file")
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join(name);
    fs::write(&file, text).expect("written");
    let container = manifest.container();
    let mounted = container
        .volume_mounts
        .iter()
        .flatten()
        .find(|mount| mount.name == "config");
    let inside = format!(
        "{}/{name}",
        mounted.expect("the configuration is mounted").mount_path
    );
    let arguments = container.args.as_deref().expect("arguments");
    assert!(arguments.contains(&inside), "{arguments:?} name {inside}");
    let arguments = arguments.iter().map(|argument| match argument == &inside {
        true => file.as_os_str().to_owned(),
        false => argument.into(),
    });
    let output = Command::new(PROGRAM)
        .args(arguments)
        .arg("--print-config")
        .env("NODE_NAME", "node1")
        .output()
        .expect("it starts");
    let [said, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{errors}");
    said
}

/// The value of an option.
fn option<'a>(effective: &'a str, name: &str) -> &'a str {
    let mut lines = effective
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": \""));
    let line = lines.next().unwrap_or_else(|| panic!("no {name} in {effective}"));
    line.split('"').next().expect("quoted")
}

#[test]
fn the_program_takes_the_arguments_and_the_configuration_of_the_manifest() {
    let manifest = Manifest::read();
    let effective = effective(&manifest);
    assert_eq!(
        option(&effective, "node"),
        "node1",
        "NODE_NAME is the node's name"
    );
    let env = manifest.container().env.as_deref().expect("variables");
    let [node_name] = env else { panic!("one variable") };
    assert_eq!(node_name.name, "NODE_NAME");
    let field = node_name
        .value_from
        .as_ref()
        .and_then(|from| from.field_ref.as_ref());
    assert_eq!(field.expect("of the pod").field_path, "spec.nodeName");
}

#[test]
fn what_is_commented_out_in_the_configuration_is_taken_too() {
    let mut manifest = Manifest::read();
    let config = manifest.config.data.as_mut().expect("data");
    for text in config.values_mut() {
        *text = text.replace("# api-server:\n# - ", "api-server:\n- ");
    }
    let effective = effective(&manifest);
    assert!(effective.contains("api-server: #"), "{effective}");
    assert!(effective.contains("- \"https://192.0.2.1:6443"), "{effective}");
}

#[test]
fn folders_that_the_program_uses_are_mounted_from_the_node() {
    let manifest = Manifest::read();
    let effective = effective(&manifest);
    let mounts = manifest.container().volume_mounts.as_deref().expect("mounts");
    let volumes = manifest.pod().volumes.as_deref().expect("volumes");
    assert_eq!(mounts.len(), volumes.len());
    let of_node = |option_name: &str| {
        let path = option(&effective, option_name);
        let mount = mounts.iter().find(|mount| mount.mount_path == path);
        let mount = mount.unwrap_or_else(|| panic!("{option_name} {path} is not mounted"));
        let volume = volumes
            .iter()
            .find(|volume| volume.name == mount.name)
            .expect("a volume");
        (
            volume.host_path.as_ref().expect("the node's").path.clone(),
            mount.read_only,
        )
    };
    assert_eq!(of_node("cgroup"), ("/sys/fs/cgroup".to_owned(), Some(true)));
    assert_eq!(of_node("bpffs"), ("/sys/fs/bpf".to_owned(), None));
    assert_eq!(of_node("state"), ("/run/plumbline".to_owned(), None));
}

#[test]
fn probes_ask_where_the_program_listens() {
    let manifest = Manifest::read();
    let effective = effective(&manifest);
    let container = manifest.container();
    let asked = |probe: &Option<Probe>| {
        let get = probe
            .as_ref()
            .and_then(|probe| probe.http_get.as_ref())
            .expect("a GET");
        let IntOrString::Int(port) = get.port else {
            panic!("a number")
        };
        (
            format!("{}:{port}", get.host.as_deref().expect("not the pod's address")),
            get.path.clone().expect("a path"),
        )
    };
    let at = |path: &str| (option(&effective, "listen").to_owned(), path.to_owned());
    assert_eq!(asked(&container.startup_probe), at("/healthz"));
    assert_eq!(asked(&container.liveness_probe), at("/healthz"));
    assert_eq!(asked(&container.readiness_probe), at("/readyz"));
}

#[test]
fn names_selectors_and_versions_agree() {
    let manifest = Manifest::read();
    let name = manifest.account.metadata.name.as_deref();
    let namespace = manifest.account.metadata.namespace.as_deref();
    assert_eq!(manifest.pod().service_account_name.as_deref(), name);
    let [subject] = manifest.binding.subjects.as_deref().expect("subjects") else {
        panic!("one subject")
    };
    assert_eq!(
        (Some(&*subject.name), subject.namespace.as_deref()),
        (name, namespace)
    );
    assert_eq!(subject.kind, "ServiceAccount");
    assert_eq!(
        Some(&manifest.binding.role_ref.name),
        manifest.role.metadata.name.as_ref()
    );
    assert_eq!(manifest.binding.role_ref.kind, "ClusterRole");
    for metadata in [&manifest.config.metadata, &manifest.daemon_set.metadata] {
        assert_eq!(metadata.namespace.as_deref(), namespace);
    }
    let volumes = manifest.pod().volumes.iter().flatten();
    let config = volumes
        .filter_map(|volume| volume.config_map.as_ref())
        .map(|config| &config.name);
    assert_eq!(
        config.collect::<Vec<_>>(),
        [manifest.config.metadata.name.as_ref().expect("a name")]
    );
    let spec = manifest.daemon_set.spec.as_ref().expect("a spec");
    let labels = spec
        .template
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.labels.as_ref());
    assert_eq!(spec.selector.match_labels.as_ref(), labels);
    let image = manifest.container().image.as_deref().expect("an image");
    assert_eq!(image.rsplit(':').next(), Some(env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_image_runs_the_program_that_the_manifest_gives_arguments_to() {
    let containerfile = manifest::text("Containerfile");
    let line = |word: &str| {
        let mut lines = containerfile
            .lines()
            .filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        lines
            .next()
            .unwrap_or_else(|| panic!("no {word} in the Containerfile"))
            .to_owned()
    };
    assert_eq!(line("FROM"), "scratch");
    assert_eq!(line("ENTRYPOINT"), r#"["/reference-agent"]"#);
    assert!(line("COPY").ends_with(" reference-agent /reference-agent"));
    // `command` would replace the entry point.
    assert_eq!(Manifest::read().container().command, None);
}
