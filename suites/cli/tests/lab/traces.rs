//! What must be gone after a lab.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::support::{cgroup, eventually};

/// What a lab has on this host while it is up: enough to check that it is gone.
#[derive(Debug)]
pub(crate) struct Traces {
    name: String,
    processes: BTreeSet<(u32, String)>,
    namespaces: BTreeSet<PathBuf>,
    links: BTreeSet<String>,
}

impl Traces {
    /// The traces of a lab that is up.
    pub(crate) fn of(name: &str) -> Self {
        let mut pids = BTreeSet::new();
        below(&cgroup(name), &mut pids);
        assert!(
            pids.len() >= 3,
            "a lab has a supervisor and an agent on each node: {pids:?}"
        );
        let mut namespaces = BTreeSet::new();
        let own = fs::read_link("/proc/self/ns/net").expect("own namespace");
        for pid in &pids {
            namespaces.extend(
                fs::read_link(format!("/proc/{pid}/ns/net"))
                    .ok()
                    .filter(|ns| *ns != own),
            );
            namespaces.extend(descriptors(*pid).into_iter().filter(|link| *link != own));
        }
        let processes = pids
            .into_iter()
            .filter_map(|pid| Some((pid, start_time(pid)?)))
            .collect();
        Self {
            name: name.to_owned(),
            processes,
            namespaces,
            links: links(),
        }
    }

    /// Processes of the lab, except one.
    pub(crate) fn others_than(&self, pid: u32) -> Vec<u32> {
        self.processes
            .iter()
            .map(|(process, _)| *process)
            .filter(|process| *process != pid)
            .collect()
    }

    /// Whether all processes of the lab have ended.
    pub(crate) fn ended(&self) -> bool {
        self.processes
            .iter()
            .all(|(pid, start)| start_time(*pid).as_ref() != Some(start))
    }

    /// Waits until nothing is left; namespaces end slightly later than their processes.
    pub(crate) async fn are_gone(&self) {
        eventually("the end of the lab's processes", || self.ended()).await;
        eventually("the end of the lab's network namespaces", || {
            self.held().is_empty()
        })
        .await;
        assert!(!cgroup(&self.name).exists(), "its cgroup is left");
        assert!(
            !Path::new("/run/plumbline").join(&self.name).exists(),
            "its folder is left"
        );
        assert_eq!(links(), self.links, "links of this host changed");
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        assert!(
            !mounts.contains(&format!("plumbline-lab-{}", self.name)),
            "a mount is left: {mounts}"
        );
    }

    /// Processes that are in, or hold, a network namespace of the lab.
    ///
    /// The kernel reuses the number of an ended namespace: namespaces of other labs do not count.
    fn held(&self) -> Vec<u32> {
        processes()
            .filter(|pid| !in_another_lab(*pid, &self.name))
            .filter(|pid| {
                let inside = fs::read_link(format!("/proc/{pid}/ns/net")).ok();
                inside
                    .into_iter()
                    .chain(descriptors(*pid))
                    .any(|ns| self.namespaces.contains(&ns))
            })
            .collect()
    }
}

fn in_another_lab(pid: u32, name: &str) -> bool {
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let own = format!("/plumbline-lab-{name}/");
    cgroups
        .lines()
        .any(|line| line.contains("/plumbline-") && !line.contains(&own))
}

fn below(folder: &Path, pids: &mut BTreeSet<u32>) {
    let procs = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    pids.extend(procs.lines().filter_map(|line| line.parse::<u32>().ok()));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below(&entry.path(), pids);
        }
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Network namespaces that a process holds open.
fn descriptors(pid: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    links
        .filter(|link| link.to_string_lossy().starts_with("net:["))
        .collect()
}

/// Distinguishes a process from a later one with the same id (proc(5): field 22 of stat). Zombies have ended.
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    (fields.first() != Some(&"Z")).then(|| fields.get(19).map(|start| (*start).to_owned()))?
}

fn links() -> BTreeSet<String> {
    let entries = fs::read_dir("/sys/class/net").expect("links").flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
