//! The seccomp profile lets the agent do all that it does, and nothing that it has no business with.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    thread,
};

use nix::sys::signal::Signal;
use seccompiler::{BpfProgram, compile_from_json};
use serde_json::{Value, json};

use crate::{
    clients::{self, Got, ask},
    control::Control,
    manifest::{self, Manifest},
    node::{Node, PROGRAM, Running},
    place::{self, place},
    pod::Pod,
    world::{World, addresses},
};

/// Names of the calls that the profile allows.
fn allowed() -> BTreeSet<String> {
    let profile: Value = serde_json::from_str(&manifest::text("seccomp.json")).expect("JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let mut allowed = BTreeSet::new();
    for group in profile["syscalls"].as_array().expect("groups") {
        assert_eq!(group["action"], "SCMP_ACT_ALLOW");
        for name in group["names"].as_array().expect("names") {
            let name = name.as_str().expect("a name").to_owned();
            assert!(allowed.insert(name.clone()), "{name} is named twice");
        }
    }
    allowed
}

/// A filter that ends a process that makes any other call; names that this architecture has not are left out.
fn filter(allowed: &BTreeSet<String>) -> BpfProgram {
    let architecture = std::env::consts::ARCH.try_into().expect("a known architecture");
    let compile = |names: &[&String]| -> Option<BpfProgram> {
        let rules: Vec<Value> = names.iter().map(|name| json!({"syscall": name})).collect();
        let filter =
            json!({"it": {"mismatch_action": "kill_process", "match_action": "allow", "filter": rules}});
        let compiled = compile_from_json(filter.to_string().as_bytes(), architecture);
        compiled.ok()?.remove("it")
    };
    let known: Vec<&String> = allowed.iter().filter(|name| compile(&[name]).is_some()).collect();
    compile(&known).expect("a filter")
}

/// Starts an agent that is ended by its first forbidden call.
fn start_under(filter: &BpfProgram, node: &Node) -> Running {
    // A filter is a thread's, and what it starts inherits it.
    thread::scope(|scope| {
        let starter = scope.spawn(|| {
            seccompiler::apply_filter(filter).expect("applied");
            node.start(Path::new(PROGRAM))
        });
        starter.join().expect("it starts")
    })
}

#[test]
fn under_the_profile_the_agent_starts_adopts_migrates_follows_changes_and_serves_devices() {
    let Some(place) = place() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let worlds = [
        World::new(&[("one", 1, &[1]), ("other", 2, &[2])]),
        World::new(&[("one", 1, &[2])]),
    ];
    place::loopback(&[addresses(1), addresses(2)].concat());
    let control = runtime.block_on(async {
        clients::serve([1, 2]).await;
        Control::start(&place.folder).await
    });
    let _pod = Pod::new();
    let node = Node::new(&place, "node", place.cgroup.clone(), &control.kubeconfig);
    let filter = filter(&allowed());
    for migrate in [false, true] {
        for world in &worlds {
            let agent = start_under(&filter, &node);
            runtime.block_on(control.become_(world));
            node.ready();
            let served = world.served();
            let got = || {
                served.iter().all(|(target, (_, servers))| {
                matches!(ask(*target), Got::Server(server) if servers.contains(&server))
            })
            };
            node.until("clients get the Services' servers", got);
            for path in ["/healthz", "/metrics", "/findings", "/dump"] {
                let code = node.get(path).map(|(code, _)| code);
                assert_eq!(code, Some(200), "{path}\n{}", node.said());
            }
            agent.end(Signal::SIGTERM);
        }
        if !migrate {
            fs::remove_file(node.pin("maps/SOURCES")).expect("it was pinned");
        }
    }
    node.clean_up();
}

#[test]
fn the_profile_forbids_what_the_agent_has_no_business_with() {
    let allowed = allowed();
    let forbidden = [
        "add_key",
        "chroot",
        "delete_module",
        "finit_module",
        "fsopen",
        "init_module",
        "io_uring_setup",
        "kexec_load",
        "keyctl",
        "mount",
        "move_mount",
        "open_tree",
        "perf_event_open",
        "pivot_root",
        "process_vm_readv",
        "process_vm_writev",
        "ptrace",
        "reboot",
        "setgid",
        "sethostname",
        "setuid",
        "swapon",
        "umount2",
        "unshare",
        "userfaultfd",
    ];
    let both: Vec<&str> = forbidden
        .into_iter()
        .filter(|name| allowed.contains(*name))
        .collect();
    assert_eq!(both, [""; 0]);
}

#[test]
fn the_readme_says_where_the_profile_goes() {
    let readme = manifest::text("README.md");
    assert!(readme.contains("localhostProfile: plumbline-agent.json"));
    let context = Manifest::read()
        .pod()
        .security_context
        .clone()
        .expect("a context");
    let profile = context.seccomp_profile.expect("a profile");
    assert_eq!(
        BTreeMap::from([("type", profile.type_)]),
        BTreeMap::from([("type", "RuntimeDefault".to_owned())])
    );
}
