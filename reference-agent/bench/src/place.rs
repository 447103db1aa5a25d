//! Kernel maps of our own: a bpffs that only this process sees, and programs that are attached nowhere.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use lb_loader::Options;
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use reference_agent::{
    control::{Control, Planner},
    datapath::{Datapath as _, KernelDatapath},
    maps::kernel::KernelMaps,
    model::{Event, Host, Kind},
    plan::Perspective,
};

/// A control plane over the kernel's maps.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    datapath: KernelDatapath,
}

impl Place {
    /// Needs root, and one thread.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("failed to make a folder")?;
        unshare(CloneFlags::CLONE_NEWNS).context("failed to make a mount namespace; is this root?")?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
            .context("failed to make mounts private")?;
        mount(Some("bpf"), folder.path(), Some("bpf"), MsFlags::empty(), none)
            .context("failed to mount a bpffs")?;
        let datapath = KernelDatapath::open(&Options::new(folder.path(), cgroups()?))
            .context("failed to open a datapath")?;
        Ok(Self { folder, datapath })
    }

    /// Empty maps, and nothing synced.
    pub(crate) fn control(&self) -> anyhow::Result<Control<Planner, KernelMaps>> {
        let planner = Planner::new(Perspective {
            node: "node-1".to_owned(),
            ..Perspective::default()
        });
        Control::new(planner, self.datapath.maps()).context("failed to read the maps")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Otherwise the folder could not be removed.
        if let Err(error) = umount2(self.folder.path(), MntFlags::MNT_DETACH) {
            eprintln!("failed to unmount {}: {error}", self.folder.path().display());
        }
    }
}

/// What ends the first lists.
pub(crate) fn synced() -> [Event; 4] {
    [
        Event::Host(Host::default()),
        Event::Synced(Kind::Node),
        Event::Synced(Kind::Service),
        Event::Synced(Kind::EndpointSlice),
    ]
}

/// Where cgroup v2 is mounted.
fn cgroups() -> anyhow::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("failed to read mountinfo")?;
    // proc_pid_mountinfo(5): `id parent major:minor root point options [tags] - type source options`.
    let mut lines = mounts.lines().filter_map(|line| line.split_once(" - "));
    let (mount, _) = lines
        .find(|(_, filesystem)| filesystem.starts_with("cgroup2 "))
        .context("no cgroup v2 is mounted")?;
    Ok(mount.split(' ').nth(4).context("a mount has no place")?.into())
}

/// Resident memory of this process, in MiB: now, and at most so far.
pub(crate) fn resident() -> anyhow::Result<(f64, f64)> {
    let status = fs::read_to_string("/proc/self/status").context("failed to read status")?;
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        kib.map(|kib| kib / 1024.0)
            .with_context(|| format!("{name} is not in /proc/self/status"))
    };
    Ok((of("VmRSS:")?, of("VmHWM:")?))
}
