//! The cgroup that programs are attached to: the agent's, or one near it.

use std::{
    fs::{self, File},
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
    process, thread,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

use crate::journal::{Deed, Note, folder, unmount};

/// Most cgroups that a search visits.
const CGROUPS: usize = 65_536;

/// A cgroup, by a path that works as long as this lives.
#[derive(Debug)]
pub(super) struct TargetCgroup {
    path: PathBuf,
    _kept: Kept,
}

/// What keeps the path working.
#[derive(Debug)]
enum Kept {
    Nothing,
    File { _open: File },
    Mount { _mount: Mount },
}

/// A mount and its folder. Dropping it removes both.
#[derive(Debug)]
struct Mount {
    at: PathBuf,
    note: Note,
}

impl TargetCgroup {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The agent's.
    pub(super) fn own(cgroup: &Path) -> Self {
        Self {
            path: cgroup.to_owned(),
            _kept: Kept::Nothing,
        }
    }

    /// The one below the agent's that this process is in.
    pub(super) fn below(cgroup: &Path) -> Result<Self, String> {
        let own = process::id().to_string();
        let is_here = |folder: &Path| {
            fs::read_to_string(folder.join("cgroup.procs"))
                .is_ok_and(|processes| processes.lines().any(|process| process == own))
        };
        let path = search(cgroup, is_here)?;
        match path {
            Some(path) if path != cgroup => Ok(Self {
                path,
                _kept: Kept::Nothing,
            }),
            _ => Err(format!(
                "expected processes of the node in a cgroup below {}, found none",
                cgroup.display()
            )),
        }
    }

    /// The one right above the agent's, by a mount of the whole hierarchy that no other process sees.
    pub(super) fn above(cgroup: &Path) -> Result<Self, String> {
        let id = cgroup_id(cgroup)?;
        thread::scope(|scope| {
            let found = scope.spawn(|| open_above(id));
            found
                .join()
                .unwrap_or_else(|_| Err("the thread that looked panicked".to_owned()))
        })
    }

    /// The one right above the agent's, by a mount that all processes of the node see while this lives.
    pub(super) fn above_shown(cgroup: &Path) -> Result<Self, String> {
        let id = cgroup_id(cgroup)?;
        let whole = Mount::make("hierarchy", mount_hierarchy)?;
        let above = search_above(&whole.at, id)?;
        let shown = Mount::make("above", |point| {
            mount(Some(&above), point, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        })?;
        Ok(Self {
            path: shown.at.clone(),
            _kept: Kept::Mount { _mount: shown },
        })
    }
}

impl Mount {
    /// Makes a folder and mounts on it.
    fn make(name: &str, mounting: impl FnOnce(&Path) -> nix::Result<()>) -> Result<Self, String> {
        let at = folder().join(format!("plumbline-{name}-{}", process::id()));
        let failed =
            |what: &str, why: &dyn std::fmt::Display| format!("can't {what} {}: {why}", at.display());
        let note = Note::write(Deed::Mounted { at: at.clone() })?;
        // Before the attempt: one that fails halfway is removed too.
        let mount = Self { at: at.clone(), note };
        fs::create_dir(&at).map_err(|error| failed("make", &error))?;
        mounting(&at).map_err(|errno| failed("mount at", &errno))?;
        Ok(mount)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        match unmount(&self.at) {
            Ok(_) => self.note.undone(),
            Err(why) => eprintln!("hold-programs: {} stays: {why}", self.at.display()),
        }
    }
}

/// Gives this thread a mount namespace of its own. What it opens there stays usable when the thread has ended.
fn open_above(id: u64) -> Result<TargetCgroup, String> {
    let failed = |what: &'static str| move |errno| format!("can't {what}: {errno}");
    // The kernel refuses a mount namespace to a thread that shares its root with others.
    unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).map_err(failed("make a mount namespace"))?;
    let private = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
        .map_err(failed("make its mounts private"))?;
    // Any folder that exists will do.
    let point = Path::new("/sys");
    mount_hierarchy(point).map_err(failed("mount the cgroup v2 hierarchy"))?;
    let above = search_above(point, id)?;
    let open = File::open(&above).map_err(|error| format!("can't open {}: {error}", above.display()))?;
    Ok(TargetCgroup {
        path: format!("/proc/self/fd/{}", open.as_raw_fd()).into(),
        _kept: Kept::File { _open: open },
    })
}

fn mount_hierarchy(point: &Path) -> nix::Result<()> {
    mount(
        Some("cgroup2"),
        point,
        Some("cgroup2"),
        MsFlags::empty(),
        None::<&str>,
    )
}

/// The cgroup above one, in a mount of the whole hierarchy.
fn search_above(hierarchy: &Path, id: u64) -> Result<PathBuf, String> {
    let is_it = |folder: &Path| fs::metadata(folder).is_ok_and(|found| found.ino() == id);
    let own =
        search(hierarchy, is_it)?.ok_or("the agent's cgroup is not in the hierarchy that can be mounted")?;
    if own == hierarchy {
        return Err(
            "nothing can be seen above the agent's cgroup: it is the root of this cgroup namespace"
                .to_owned(),
        );
    }
    Ok(own.parent().unwrap_or(hierarchy).to_owned())
}

/// The id of a cgroup, which is the inode of its folder.
pub(crate) fn cgroup_id(cgroup: &Path) -> Result<u64, String> {
    let metadata = fs::metadata(cgroup);
    metadata
        .map(|metadata| metadata.ino())
        .map_err(|error| format!("can't look at {}: {error}", cgroup.display()))
}

/// The first cgroup at or below a folder that passes a test, by depth.
fn search(from: &Path, test: impl Fn(&Path) -> bool) -> Result<Option<PathBuf>, String> {
    let mut folders = vec![from.to_owned()];
    let mut next = 0;
    while let Some(folder) = folders.get(next).cloned() {
        if test(&folder) {
            return Ok(Some(folder));
        }
        next += 1;
        if next >= CGROUPS {
            return Err(format!(
                "there are more than {CGROUPS} cgroups: none is looked for among so many"
            ));
        }
        // One that has just been removed has none below.
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        let below = entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(below.map(|entry| entry.path()));
    }
    Ok(None)
}
