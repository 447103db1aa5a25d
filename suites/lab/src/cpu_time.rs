//! CPU time of the programs of a lab.

use std::{collections::BTreeMap, fs, path::Path};

use super::{LabError, cgroup};

/// Programs and their cgroups in a lab's subtree; `*` matches any name.
const PROGRAMS: [(&str, &[&str]); 6] = [
    ("supervisor (API servers, kubelets)", &["control"]),
    ("Kubernetes' own control plane", &["control-plane"]),
    ("agents", &["*", "agent"]),
    ("backends and clients in pods", &["*", "pods"]),
    ("clients and helpers on nodes", &["*", "system"]),
    ("clients outside", &["outside"]),
];

/// CPU seconds, user and system, by program, including programs that have ended. Work of the kernel outside of
/// processes (interrupts, for example for packets) is not counted.
///
/// # Errors
/// The cgroup v2 hierarchy is gone.
pub(super) fn processor_seconds(lab: &str) -> Result<BTreeMap<&'static str, f64>, LabError> {
    let lab = cgroup::Cgroup::of_lab(&cgroup::hierarchy()?, lab);
    let of = |(program, path): (&'static str, &[&str])| (program, seconds(lab.path(), path));
    Ok(PROGRAMS
        .into_iter()
        .map(of)
        .filter(|(_, seconds)| *seconds > 0.0)
        .collect())
}

/// Sum over all cgroups that match a path.
fn seconds(folder: &Path, path: &[&str]) -> f64 {
    match path.split_first() {
        None => usage(&fs::read_to_string(folder.join("cpu.stat")).unwrap_or_default()),
        Some((&"*", rest)) => {
            let below = fs::read_dir(folder).into_iter().flatten().flatten();
            below.map(|entry| seconds(&entry.path(), rest)).sum()
        }
        Some((name, rest)) => seconds(&folder.join(name), rest),
    }
}

/// `usage_usec` of a `cpu.stat`, which each cgroup has (cgroups v2, "CPU Interface Files"); 0 for a removed cgroup.
fn usage(stat: &str) -> f64 {
    let microseconds = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
    microseconds
        .and_then(|text| text.parse::<f64>().ok())
        .unwrap_or_default()
        / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_that_of_the_programs_cgroups_on_all_nodes() {
        let lab = tempfile::tempdir().unwrap();
        for (path, usage) in [
            ("node1/agent", 1_500_000),
            ("node2/agent", 500_000),
            ("node1/pods", 7),
            ("control", 250_000),
        ] {
            let folder = lab.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(
                folder.join("cpu.stat"),
                format!("usage_usec {usage}\nuser_usec 1\n"),
            )
            .unwrap();
        }
        assert!((seconds(lab.path(), &["*", "agent"]) - 2.0).abs() < 1e-9);
        assert!((seconds(lab.path(), &["control"]) - 0.25).abs() < 1e-9);
        assert!(seconds(lab.path(), &["outside"]).abs() < 1e-9);
    }
}
