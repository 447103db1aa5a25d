//! Nodes of a kind cluster: stopped ones, ones without a bpffs, and unusable ones.

use std::fs;

use super::{
    kind::{Fake, NOTHING, STOPPED, called},
    privileged,
};

/// A daemon whose only node is the caller: it executes commands in place.
const ASKS: &str = r#"case $1 in
    info) echo 29.0 ;;
    ps) echo 0123 ;;
    inspect) echo '[{"Name": "/node", "State": {"Running": true, "Pid": '$PPID'},
        "NetworkSettings": {"Networks": {"mine": {"IPAddress": "172.18.0.2", "GlobalIPv6Address": ""}}},
        "Config": {"Labels": {"io.x-k8s.kind.role": "control-plane"}}}]' ;;
    exec) shift 2; PATH=/usr/sbin:/usr/bin:/sbin:/bin exec "$@" ;;
    *) echo "no $1 here" >&2; exit 1 ;;
esac"#;

#[test]
fn a_cluster_that_was_kept_is_not_removed_while_its_nodes_are_stopped() {
    if !privileged() {
        return;
    }
    let fake = Fake {
        docker: Some(STOPPED),
        ..NOTHING
    };
    for arguments in [&["cleanup"][..], &["cleanup", "--kind", "kept"]] {
        let folder = tempfile::tempdir().unwrap();
        let output = called(folder.path(), &fake, "mkdir kept && touch kept/kept", arguments);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(said.contains("kept/kept"), "{said}");
        let calls = fs::read_to_string(folder.path().join("calls")).unwrap_or_default();
        assert!(
            calls.contains("docker ps") && !calls.contains("delete"),
            "{calls}"
        );
    }
}

#[test]
fn a_node_without_a_bpffs_gets_one() {
    if !privileged() {
        return;
    }
    let fake = Fake {
        docker: Some(ASKS),
        ..NOTHING
    };
    let without = "while umount -t bpf -a 2> /dev/null && grep -q ' - bpf ' /proc/self/mountinfo; do :; done";
    let folder = tempfile::tempdir().unwrap();
    let options = ["run", "--provider", "kind", "--reuse", "kept", "--out", "out"];
    let output = called(folder.path(), &fake, without, &options);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    // The run fails at a later step.
    assert!(said.contains("bringing up") && !said.contains("bpf"), "{said}");
    let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
    let mounted = calls
        .matches("docker exec node mount -t bpf bpf /sys/fs/bpf")
        .count();
    assert_eq!(mounted, 1, "{calls}");
}

#[test]
fn nodes_are_containers_of_docker_s_or_nothing_is_begun() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let told = "export KIND_EXPERIMENTAL_PROVIDER=podman";
    let output = called(
        folder.path(),
        &NOTHING,
        told,
        &["run", "--provider", "kind", "--out", "out"],
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("should be docker or not set, and is \"podman\""),
        "{said}"
    );
    assert!(!folder.path().join("calls").exists());
}

/// A daemon with two nodes, both control planes.
const PLANES: &str = r#"case $1 in
    info) echo 29.0 ;;
    ps) echo 0123; echo 4567 ;;
    inspect) echo '[{"Name": "/one", "State": {"Running": true, "Pid": 1}, "NetworkSettings": {"Networks": {}},
            "Config": {"Labels": {"io.x-k8s.kind.role": "control-plane"}}},
        {"Name": "/two", "State": {"Running": true, "Pid": 1}, "NetworkSettings": {"Networks": {}},
            "Config": {"Labels": {"io.x-k8s.kind.role": "control-plane"}}}]' ;;
esac"#;

#[test]
fn a_cluster_of_several_control_planes_is_not_begun_with() {
    if !privileged() {
        return;
    }
    let fake = Fake {
        docker: Some(PLANES),
        ..NOTHING
    };
    let folder = tempfile::tempdir().unwrap();
    let options = ["run", "--provider", "kind", "--reuse", "large", "--out", "out"];
    let output = called(folder.path(), &fake, "", &options);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("\"large\" has the control planes one, two, and one is expected"),
        "{said}"
    );
    assert!(!String::from_utf8_lossy(&output.stdout).contains("large"));
}

#[test]
fn a_cluster_that_was_kept_where_folders_were_before_is_found() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let before = "mkdir /run/plumbline-kind/former && touch /run/plumbline-kind/former/kept";
    let output = called(folder.path(), &NOTHING, before, &["heal", "--kind", "kind"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("kept: former"), "{said}");
}
