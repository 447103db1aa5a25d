//! The client, and the cgroup that it is in.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use doctor::Examination;

/// The client, as the command line names it.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(multiple = false)]
pub(super) struct Client {
    /// The client's cgroup, as a path [default: the root, whose programs run for every process]
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// A process of the client
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// The client's container id, or the beginning of it: cgroup names contain it
    #[arg(long, value_name = "ID")]
    container: Option<String>,
    /// The client is outside this node: its packets come in by a device
    #[arg(long)]
    pub(super) outside: bool,
}

/// Limit of cgroups that are searched for a container's.
const MOST: usize = 50_000;
/// Shortest accepted prefix: a shorter one matches too many containers.
const SHORTEST: usize = 6;

impl Client {
    /// The client's cgroup.
    pub(super) fn cgroup(&self, examination: &Examination) -> anyhow::Result<PathBuf> {
        if let Some(pid) = self.pid {
            let cgroup = examination.cgroup_of(pid);
            return cgroup.with_context(|| format!("failed to find the cgroup of process {pid}"));
        }
        if let Some(container) = &self.container {
            return find(&examination.cgroup, container);
        }
        let cgroup = self.cgroup.clone().unwrap_or_else(|| examination.cgroup.clone());
        let cgroup = fs::canonicalize(&cgroup)
            .with_context(|| format!("failed to find the cgroup {}", cgroup.display()))?;
        if cgroup.starts_with(&examination.cgroup) {
            Ok(cgroup)
        } else {
            bail!(
                "expected a folder below {}, where cgroup v2 is mounted, found {}",
                examination.cgroup.display(),
                cgroup.display()
            )
        }
    }
}

/// The cgroup below a folder whose name contains a container's id. The cgroups below that one belong to the container,
/// too.
fn find(root: &Path, container: &str) -> anyhow::Result<PathBuf> {
    if container.len() < SHORTEST {
        bail!("expected at least {SHORTEST} characters of a container's id, found '{container}'");
    }
    let mut found = Vec::new();
    let mut folders = VecDeque::from([root.to_owned()]);
    let mut seen = 0;
    while let Some(folder) = folders.pop_front() {
        seen += 1;
        if seen > MOST {
            bail!("there are more than {MOST} cgroups: name it with --cgroup");
        }
        // The cgroup may have been removed meanwhile.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().contains(container) {
                found.push(entry.path());
            } else {
                folders.push_back(entry.path());
            }
        }
    }
    match found.as_slice() {
        [cgroup] => Ok(cgroup.clone()),
        [] => bail!("no cgroup below {} has {container} in its name", root.display()),
        several => {
            let several: Vec<String> = several.iter().map(|path| path.display().to_string()).collect();
            bail!(
                "several cgroups have {container} in their names: {}",
                several.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_found_by_the_beginning_of_its_id() {
        let folder = tempfile::tempdir().unwrap();
        let pod = folder.path().join("kubepods.slice/pod1");
        let one = pod.join("cri-containerd-0123456789abcdef.scope");
        fs::create_dir_all(one.join("init")).unwrap();
        fs::create_dir_all(pod.join("cri-containerd-0123456fffffffff.scope")).unwrap();
        assert_eq!(find(folder.path(), "012345678").unwrap(), one);
        for (id, expected) in [
            ("0123", "at least 6"),
            ("0123456", "several cgroups"),
            ("ffffff0", "no cgroup"),
        ] {
            let error = find(folder.path(), id).unwrap_err().to_string();
            assert!(error.contains(expected), "{id}: {error}");
        }
    }
}
