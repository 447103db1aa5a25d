//! Why a lab could not be made or used.
//!
//! Messages are complete: they contain the lower layer's text and have no source, or reports would repeat it.

use std::{io, path::PathBuf, time::Duration};

use cluster::Place;

/// One variant for each cause.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// An invalid lab name.
    #[error(
        "{found:?} can't be a lab's name; expected 1 to 32 of a-z, 0-9 and '-', with no '-' at either end"
    )]
    Name {
        /// The invalid value.
        found: String,
    },
    /// No node, or too many.
    #[error(
        "a lab of {found} nodes can't be made; expected 1 to {most}: all nodes share this host's kernel, which runs \
         the programs and holds the maps of every one",
        most = super::LabConfig::MOST_NODES
    )]
    Nodes {
        /// The invalid value.
        found: u8,
    },
    /// No API server, or too many.
    #[error(
        "a lab with {found} API servers can't be made; expected 1 to {most}",
        most = super::ControlPlane::MOST_SERVERS
    )]
    ApiServers {
        /// The invalid value.
        found: u8,
    },
    /// A program of Kubernetes' own control plane is missing.
    #[error(
        "there is no {program} in {folder}; expected the absolute path of a folder with etcd, kube-apiserver and \
         kube-controller-manager, such as those of a Kubernetes release (dl.k8s.io) and one of etcd"
    )]
    ControlPlane {
        /// The folder.
        folder: PathBuf,
        /// The missing program.
        program: &'static str,
    },
    /// The agent's command line is empty.
    #[error("the agent's command is empty; expected a program, such as the path of reference-agent")]
    NoAgent,
    /// A program is not at the expected path.
    #[error(
        "there is no {what} program at {path}; expected an absolute path of an executable. \
         Build it in the source tree: `cargo build -p plumbline -p reference-agent`"
    )]
    MissingProgram {
        /// Name of the program.
        what: String,
        /// The expected path.
        path: PathBuf,
    },
    /// The program of a target was not found.
    #[error(
        "there is no program {program}: expected it beside plumbline, in the folder that {folder} names, or on the \
         PATH. Say where it is with --agent PATH, or build the source tree's own: \
         `cargo build -p plumbline -p reference-agent`",
        folder = super::KUBERNETES
    )]
    NoProgram {
        /// Its name.
        program: String,
    },
    /// An invalid target.
    #[error(transparent)]
    Target(#[from] cluster::target::TargetError),
    /// A target whose file describes no program for the lab.
    #[error(
        "the target {target} does not run in the embedded lab: expected a part `lab` in its file, found only `cluster`, \
         which says how it is installed on a cluster (`plumbline targets show {target}`)"
    )]
    NotHere {
        /// Its name, or its file.
        target: String,
    },
    /// A program that the target calls was not found.
    #[error("the target {target} calls {tool}, which is not on the PATH; install it")]
    MissingTool {
        /// The target.
        target: String,
        /// The program.
        tool: String,
    },
    /// The kernel or the host lacks a feature that the target needs.
    #[error(
        "the target {target} needs {need}, which this host lacks: `{tried}` said: {why}. \
         Load the module or install the package that is named, or use a kernel with that option"
    )]
    MissingNeed {
        /// The target.
        target: String,
        /// The missing feature.
        need: String,
        /// The command that checks it.
        tried: String,
        /// Its output.
        why: String,
    },
    /// Namespaces and cgroups need root.
    #[error("the lab makes namespaces and cgroups and needs root, but runs as uid {uid}; start it with sudo")]
    NotRoot {
        /// Effective user id.
        uid: u32,
    },
    /// Root of a user namespace is not the host's.
    #[error(
        "the lab needs root of this host, but this is root of a user namespace, such as a rootless container's, which owns \
         no cgroup and may mount nothing. Start it with sudo on the host, or in a privileged container that is not rootless"
    )]
    UserNamespace,
    /// Root lacks capabilities.
    #[error(
        "the lab needs {missing}, which this process lacks although it is root. In a container: docker run --privileged; \
         as a service: leave them in its CapabilityBoundingSet"
    )]
    Capabilities {
        /// Names as in capabilities(7).
        missing: String,
    },
    /// The kernel is too old.
    #[error(
        "this host's kernel is {found}; expected {}.{} or newer (cgroup.kill, and what the agents' programs need). Run the \
         lab on a newer kernel, such as in a virtual machine",
        oldest.0, oldest.1
    )]
    OldKernel {
        /// Its release.
        found: String,
        /// The oldest supported version, major and minor.
        oldest: (u32, u32),
    },
    /// The kernel has no bpf file system.
    #[error(
        "this host's kernel has no bpf file system, where the nodes' agents pin their maps: there is no bpf in \
         /proc/filesystems. Use a kernel with CONFIG_BPF_SYSCALL"
    )]
    NoBpffs,
    /// Loopback does not connect.
    #[error(
        "nothing can be reached at 127.0.0.1 of this host, where the lab's API is: {error}. Set the loopback up: ip link \
         set lo up"
    )]
    NoLoopback {
        /// The kernel's error.
        error: io::Error,
    },
    /// No cgroup v2 hierarchy is mounted.
    #[error(
        "no cgroup2 file system is mounted; expected one in /proc/self/mountinfo. \
         Mount it (mount -t cgroup2 none /sys/fs/cgroup/unified) or boot with systemd.unified_cgroup_hierarchy=1"
    )]
    NoCgroup2,
    /// The kernel has no IPv6.
    #[error(
        "this host's kernel has no IPv6, which was asked for: there is no /proc/sys/net/ipv6. \
         Boot without ipv6.disable=1, or make a lab of IPv4 (leave out --ipv6 and --dual)"
    )]
    NoIpv6,
    /// The kernel, or this container, lacks a feature.
    #[error("this host can't {what}: {why}. {remedy}")]
    Host {
        /// The operation.
        what: String,
        /// The kernel's error.
        why: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// A lab of this name is running.
    #[error(
        "the lab {name:?} is already up (supervisor: process {pid}). Use it, take it down \
         (plumbline lab down --name {name}), or choose another name"
    )]
    AlreadyUp {
        /// Its name.
        name: String,
        /// Process id of its supervisor.
        pid: u32,
    },
    /// A lab of this name is being started.
    #[error(
        "the lab {name:?} is being brought up just now (supervisor: process {pid}). Wait until it is up, or take it down \
         (plumbline lab down --name {name}), which ends its start"
    )]
    Starting {
        /// Its name.
        name: String,
        /// Process id of its supervisor.
        pid: u32,
    },
    /// The supervisor's cgroup contains a process, which does not answer.
    #[error(
        "the lab {name:?} has a supervisor that did not answer within {limit:?} (process: see {cgroup}/cgroup.procs). \
         If another container brought it up, take it down there; otherwise kill that process and try again"
    )]
    Held {
        /// The lab.
        name: String,
        /// The supervisor's cgroup.
        cgroup: PathBuf,
        /// How long it was waited for.
        limit: Duration,
    },
    /// No lab of this name is running.
    #[error("there is no lab {name:?}; make one: plumbline lab up --name {name}")]
    NotUp {
        /// Its name.
        name: String,
    },
    /// The supervisor ended, or refused, before the lab was ready.
    #[error("the lab {name:?} did not come up: {why}")]
    Start {
        /// Its name.
        name: String,
        /// Its message, and the end of its log.
        why: String,
    },
    /// An operation did not end within its limit.
    #[error("{what} did not happen within {limit:?}{hint}")]
    Limit {
        /// The operation.
        what: String,
        /// The limit.
        limit: Duration,
        /// Further information: the end of a log, or empty.
        hint: String,
    },
    /// The supervisor refused a request.
    #[error(transparent)]
    Refused(#[from] cluster::ClusterError),
    /// The connection to the supervisor failed.
    #[error("failed to talk with the supervisor of lab {name:?}: {why}")]
    Control {
        /// The lab.
        name: String,
        /// The cause.
        why: String,
    },
    /// A call to the kernel about namespaces, links, addresses or routes failed.
    #[error("failed to {what}: {error}")]
    Netlink {
        /// The operation.
        what: String,
        /// The kernel's error.
        error: rtnetlink::Error,
    },
    /// The API server refused a request.
    #[error("failed to {what}: {error}")]
    Api {
        /// The operation.
        what: String,
        /// The API server's error.
        error: Box<kube::Error>,
    },
    /// A program can't be started in a place.
    #[error(
        "failed to start {program} {place}: {error}; expected the path of a program there, or its name on the PATH (`probe` \
         and `plumbline` are everywhere)"
    )]
    NotStarted {
        /// Its name or path.
        program: String,
        /// The place.
        place: Place,
        /// The kernel's error.
        error: io::Error,
    },
    /// Another system call failed.
    #[error("failed to {what}: {error}")]
    Io {
        /// The operation.
        what: String,
        /// The cause.
        error: io::Error,
    },
}

/// For `map_err`: the operation, which completes "failed to …".
pub(super) fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
    let what = what.into();
    move |error| LabError::Io { what, error }
}
