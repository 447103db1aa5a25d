//! Finds processes and cgroups of pods, nodes and the outside client on this host.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use cluster::{
    processes::oldest,
    spawn::{self, Placement},
};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::time::timeout;

use super::{KindError, containers::Container, error::io_error};

/// Depth of containers' cgroups below a node's root, at most: those of kubelet, QoS class, pod and container, and of
/// systemd.
const DEPTH: usize = 8;
/// Bytes of a process's name that the kernel keeps (`TASK_COMM_LEN`, without the NUL).
const COMM: usize = 15;

/// Id of a pod's only container, without the name of its runtime.
pub(super) fn container_id(pod: &Pod) -> Option<&str> {
    id(pod.status.as_ref()?.container_statuses.as_ref()?.first()?)
}

/// Id of a container, without the name of its runtime.
pub(super) fn id(status: &ContainerStatus) -> Option<&str> {
    let id = status.container_id.as_deref()?;
    Some(id.rsplit('/').next().unwrap_or(id))
}

/// Placement on a node, outside any pod, in the cgroup of the node's first process, which accepts further processes.
pub(super) fn of_node(node: &Container) -> Result<Placement, KindError> {
    Ok(Placement {
        net: Some(node.namespace("net")?),
        mnt: Some(node.namespace("mnt")?),
        pid: Some(node.namespace("pid")?),
        cgroups: Some(node.namespace("cgroup")?),
        cgroup: Some(entrance(&cgroup_of(node.pid, &node.cgroup)?)?),
    })
}

/// Runs a program of a node on it, to its end; returns its stdout.
pub(super) async fn on_node(
    node: &Container,
    program: &Path,
    arguments: &[String],
    what: &str,
    limit: Duration,
) -> Result<String, KindError> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = spawn::spawn(command, of_node(node)?)
        .await
        .map_err(io_error(what))?;
    let unexpected = |why: String| KindError::Unexpected {
        what: what.to_owned(),
        why,
    };
    let output = timeout(limit, child.wait_with_output())
        .await
        .map_err(|_| unexpected(format!("it did not end within {limit:?}")))?
        .map_err(io_error(what))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(unexpected(format!(
        "it ended with {}: {}",
        output.status,
        stderr.trim_end()
    )))
}

/// Placement in a container of a pod: its network namespace and its cgroup. Programs are this host's.
pub(super) fn in_container(node: &Container, id: &str) -> Result<Option<Placement>, KindError> {
    let Some(cgroup) = find(&node.cgroup, id, DEPTH) else {
        return Ok(None);
    };
    let Some(pid) = first_process(&cgroup) else {
        return Ok(None);
    };
    Ok(Some(Placement {
        net: Some(namespace(pid, "net")?),
        cgroup: Some(entrance(&cgroup)?),
        ..Placement::default()
    }))
}

/// Placement in a container that is no node: the outside client.
pub(super) fn beside(pid: u32) -> Result<Placement, KindError> {
    Ok(Placement {
        net: Some(namespace(pid, "net")?),
        ..Placement::default()
    })
}

/// First process of a container of a pod, as this host sees it; `None` if it has none.
pub(super) fn process(node: &Container, id: &str) -> Option<u32> {
    first_process(&find(&node.cgroup, id, DEPTH)?)
}

/// Process id of a node's process as seen on the node; `None` if it has ended.
pub(super) fn as_on_node(node: &Container, pid: u32) -> Option<u32> {
    let status = |pid: u32| read(Path::new(&format!("/proc/{pid}/status"))).ok();
    below_by(&status(node.pid)?, &status(pid)?)
}

/// Process ids are listed from the outermost namespace to the process's own (`NSpid`, proc_pid_status(5)): the result
/// is that at the depth of the node's first process.
fn below_by(first: &str, process: &str) -> Option<u32> {
    let numbers = |status: &str| -> Option<Vec<u32>> {
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        line.split_whitespace()
            .map(|number| number.parse().ok())
            .collect()
    };
    let depth = numbers(first)?.len();
    numbers(process)?.get(depth.checked_sub(1)?).copied()
}

/// All processes of a node with this name, as this host sees them.
pub(super) fn named(node: &Container, name: &str) -> Vec<u32> {
    let mut all = Vec::new();
    let mut folders = vec![node.cgroup.clone()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(below.map(|entry| entry.path()));
        // A cgroup that was removed meanwhile has no process.
        let text = read(&folder.join("cgroup.procs")).unwrap_or_default();
        all.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    }
    let is_so = |pid: &u32| {
        let comm = read(Path::new(&format!("/proc/{pid}/comm")));
        // The kernel keeps 15 bytes of a name (proc_pid_comm(5)).
        let kept = name.get(..COMM).unwrap_or(name);
        comm.is_ok_and(|comm| comm.trim_end() == kept)
    };
    all.retain(is_so);
    all
}

/// Signals processes; one that has ended meanwhile is no error.
pub(super) fn signal(processes: &[u32], signal: Signal) {
    for pid in processes.iter().filter_map(|pid| i32::try_from(*pid).ok()) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

fn namespace(pid: u32, kind: &str) -> Result<File, KindError> {
    let path = format!("/proc/{pid}/ns/{kind}");
    File::open(&path).map_err(io_error(format!("open {path}")))
}

fn entrance(cgroup: &Path) -> Result<File, KindError> {
    let procs = cgroup.join("cgroup.procs");
    let opened = OpenOptions::new().write(true).open(&procs);
    opened.map_err(io_error(format!("open {}", procs.display())))
}

/// The cgroup of a process below a node's root, whose name the process's path contains.
fn cgroup_of(pid: u32, root: &Path) -> Result<PathBuf, KindError> {
    let path = format!("/proc/{pid}/cgroup");
    let text = fs::read_to_string(&path).map_err(io_error(format!("read {path}")))?;
    below(&text, root).ok_or_else(|| KindError::Unexpected {
        what: format!("find the cgroup of process {pid}"),
        why: format!("{path} names none below {}: {text:?}", root.display()),
    })
}

/// Hierarchy 0 is version 2 (cgroups(7)). Its path is relative to the reader's cgroup namespace, the folder to the
/// mount; both contain the name of the node's root.
fn below(text: &str, root: &Path) -> Option<PathBuf> {
    let own = Path::new(text.lines().find_map(|line| line.strip_prefix("0::"))?);
    let name = root.file_name()?;
    let mut parts = own.components();
    parts.by_ref().find(|part| part.as_os_str() == name)?;
    Some(root.join(parts.as_path()))
}

/// The folder whose name contains a container's id.
fn find(folder: &Path, id: &str, depth: usize) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let folders = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let folders: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    let is_it = |path: &&PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().contains(id))
    };
    if let Some(found) = folders.iter().find(is_it) {
        return Some(found.clone());
    }
    let deeper = depth.checked_sub(1)?;
    folders.iter().find_map(|folder| find(folder, id, deeper))
}

/// The process of a container's cgroup that began first.
fn first_process(cgroup: &Path) -> Option<u32> {
    let text = read(&cgroup.join("cgroup.procs")).ok()?;
    // 0 is a process that this one's namespace does not show.
    oldest(
        Path::new("/proc"),
        text.lines().filter_map(|line| line.parse().ok()),
    )
}

fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_a_node_is_found_below_its_root() {
        let root = Path::new("/sys/fs/cgroup/unified/docker/cd22");
        let text = "4:memory:/docker/cd22/init.scope\n0::/docker/cd22/init.scope\n";
        assert_eq!(below(text, root), Some(root.join("init.scope")));
        assert_eq!(below("0::/docker/cd22\n", root), Some(root.to_owned()));
        assert_eq!(below("0::/user.slice\n", root), None);
        assert_eq!(below("4:memory:/docker/cd22\n", root), None);
    }

    #[test]
    fn a_process_has_the_number_that_its_node_knows() {
        let first = "Name:\tsystemd\nNSpid:\t4711\t1\n";
        assert_eq!(below_by(first, "NSpid:\t4800\t90\n"), Some(90), "the node's own");
        assert_eq!(below_by(first, "NSpid:\t4900\t95\t1\n"), Some(95), "a pod's own");
        assert_eq!(below_by(first, "NSpid:\t4900\n"), None, "none of its processes");
        assert_eq!(below_by("Name:\tsystemd\n", "NSpid:\t4900\n"), None);
    }

    #[test]
    fn processes_of_a_node_are_found_by_as_much_of_their_names_as_the_kernel_keeps() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("kubelet.slice/pod1/abc");
        fs::create_dir_all(&deep).expect("folders");
        let own = std::process::id();
        fs::write(deep.join("cgroup.procs"), format!("0\n{own}\n")).expect("a file");
        let node = Container {
            image: String::new(),
            name: "a".to_owned(),
            is_control_plane: false,
            pid: own,
            network: "kind".to_owned(),
            addresses: Vec::new(),
            cgroup: folder.path().to_owned(),
            cgroup_root: folder.path().to_owned(),
            bpffs: folder.path().to_owned(),
        };
        let comm = fs::read_to_string("/proc/self/comm").expect("a name");
        let comm = comm.trim_end();
        assert_eq!(named(&node, comm), [own]);
        assert!(named(&node, "kube-apiserver").is_empty());
        if comm.len() == COMM {
            assert_eq!(named(&node, &format!("{comm}-and-more")), [own]);
        }
    }

    #[test]
    fn containers_are_found_by_their_id_and_not_too_deep() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder
            .path()
            .join("kubelet.slice/pods.slice/pod1.slice/cri-containerd-abc123.scope");
        fs::create_dir_all(&deep).expect("folders");
        let own = std::process::id();
        let mut child = Command::new("sleep").arg("60").spawn().expect("a child");
        fs::write(deep.join("cgroup.procs"), format!("0\n{}\n{own}\n", child.id())).expect("a file");
        assert_eq!(find(folder.path(), "abc123", DEPTH), Some(deep.clone()));
        assert_eq!(find(folder.path(), "abc123", 2), None);
        assert_eq!(find(folder.path(), "abd", DEPTH), None);
        let first = first_process(&deep);
        child.kill().and_then(|()| child.wait()).expect("the child ends");
        assert_eq!(first, Some(own));
    }
}
