//! The programs as they are shipped, in a root that holds nothing but them and what a container runtime mounts.

use std::{
    env, fs,
    os::unix::fs::chroot,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::signal::Signal,
};

use crate::{
    clients::{self, Got, ask},
    node::{Node, Running},
    place::{self, place},
    world::{World, addresses},
};

/// Names the folder that has them.
const FOLDER: &str = "PLUMBLINE_DIST";
const AGENT: &str = "reference-agent";
const PLUMBLINE: &str = "plumbline";

/// A thread's root is its own, and what it starts has it too.
fn within<T: Send>(root: &Path, start: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let starter = scope.spawn(|| {
            unshare(CloneFlags::CLONE_FS).expect("a root of its own");
            chroot(root).expect("that root");
            env::set_current_dir("/").expect("its top");
            start()
        });
        starter.join().expect("it starts")
    })
}

/// Nothing is told to it but this.
fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(Path::new("/").join(program));
    command.env_clear().args(arguments);
    command
}

fn output(root: &Path, program: &str, arguments: &[&str]) -> Output {
    // There is no /dev/null.
    let run = || {
        command(program, arguments)
            .stdin(Stdio::piped())
            .output()
            .unwrap_or_else(|error| panic!("/{program}: {error}"))
    };
    within(root, run)
}

fn text(output: &Output) -> String {
    let [said, errors] = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
    format!("{}\n{said}{errors}", output.status)
}

#[test]
#[ignore = "needs programs that take long to build: `cargo xtask dist --check`"]
fn the_static_programs_need_nothing_else() {
    let Some(place) = place() else {
        return;
    };
    let programs = env::var_os(FOLDER).map(PathBuf::from);
    let programs = programs.unwrap_or_else(|| panic!("{FOLDER} must name the folder of the programs"));
    let root = &place.folder;
    for program in [AGENT, PLUMBLINE] {
        let from = programs.join(program);
        fs::copy(&from, root.join(program)).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        for arguments in [&["--help"], &["--version"]] {
            let output = output(root, program, arguments);
            assert!(
                output.status.success(),
                "{program} {arguments:?}: {}",
                text(&output)
            );
            assert!(!output.stdout.is_empty(), "{program} {arguments:?}");
        }
    }

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    place::loopback(&addresses(1));
    runtime.block_on(clients::serve([1]));
    let world = World::new(&[("one", 1, &[1])]);
    let objects = root.join("objects");
    fs::create_dir(&objects).expect("a folder");
    for (name, object) in world.services().into_iter().chain(world.slices()) {
        let kind = object["kind"].as_str().expect("a kind");
        fs::write(objects.join(format!("{kind}-{name}.json")), object.to_string()).expect("written");
    }
    let none = None::<&str>;
    let mounts = [
        ("cgroup", Some(&place.cgroup), none, MsFlags::MS_BIND),
        ("proc", None, Some("proc"), MsFlags::empty()),
    ];
    for (name, from, kind, flags) in mounts {
        let at = root.join(name);
        fs::create_dir(&at).expect("a folder");
        mount(from, &at, kind, flags, none).expect("mounted");
    }
    // Its bpffs is below the root, by its name.
    let node = Node::new(&place, "bpf", place.cgroup.clone(), Path::new(""));

    let run = [
        "run",
        "--from",
        "/objects",
        "--node",
        "here",
        "--cgroup",
        "/cgroup",
        "--bpffs",
        "/bpf",
        "--state",
        "/state",
        "--listen",
        "127.0.0.1:9440",
    ];
    let log = fs::File::create(root.join("bpf.log")).expect("a log");
    let agent = within(root, || {
        let mut command = command(AGENT, &run);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        Running::new(command.spawn().expect("it starts"))
    });
    node.ready();
    for target in world.served().into_keys() {
        assert!(matches!(ask(target), Got::Server(1)), "{target:?}");
    }
    let dump = output(root, AGENT, &["dump", "--bpffs", "/bpf"]);
    assert!(
        dump.status.success() && text(&dump).contains("10.96.1.1"),
        "{}",
        text(&dump)
    );
    let doctor = output(
        root,
        PLUMBLINE,
        &[
            "doctor",
            "--cgroup-mount",
            "/cgroup",
            "--bpffs",
            "/bpf",
            "--below",
            "/cgroup",
        ],
    );
    assert!(doctor.status.success(), "{}", text(&doctor));
    agent.end(Signal::SIGTERM);
    let cleanup = output(
        root,
        AGENT,
        &["cleanup", "--cgroup", "/cgroup", "--bpffs", "/bpf"],
    );
    assert!(cleanup.status.success(), "{}", text(&cleanup));
    for target in world.served().into_keys() {
        assert!(matches!(ask(target), Got::Nobody(_)), "{target:?}");
    }
}
