//! Cgroups near the agent's.

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

/// Most cgroups that are looked at.
const CGROUPS: usize = 65_536;

/// A cgroup, and what keeps its path open.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    _open: Option<File>,
}

impl Place {
    /// The agent's.
    pub(super) fn own(cgroup: &Path) -> Self {
        Self {
            path: cgroup.to_owned(),
            _open: None,
        }
    }

    /// The one below it in which this process is.
    pub(super) fn below(cgroup: &Path) -> Result<Self, String> {
        let own = process::id().to_string();
        let is_here = |folder: &Path| {
            fs::read_to_string(folder.join("cgroup.procs"))
                .is_ok_and(|processes| processes.lines().any(|process| process == own))
        };
        let path = search(cgroup, is_here)?;
        match path {
            Some(path) if path != cgroup => Ok(Self { path, _open: None }),
            _ => Err(format!(
                "expected processes of the node in a cgroup below {}, found none",
                cgroup.display()
            )),
        }
    }

    /// The one right above it, by a mount of the whole hierarchy that nobody else sees.
    pub(super) fn above(cgroup: &Path) -> Result<Self, String> {
        let id = fs::metadata(cgroup)
            .map_err(|error| format!("can't look at {}: {error}", cgroup.display()))?
            .ino();
        thread::scope(|scope| {
            let found = scope.spawn(|| open_above(id));
            found
                .join()
                .unwrap_or_else(|_| Err("the thread that looked panicked".to_owned()))
        })
    }
}

/// Of this thread, whose mounts are its own afterwards: what it opened stays usable when they are gone.
fn open_above(id: u64) -> Result<Place, String> {
    let failed = |what: &'static str| move |errno| format!("can't {what}: {errno}");
    // A thread that shares its root with others may not have mounts of its own.
    unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).map_err(failed("make a mount namespace"))?;
    let private = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
        .map_err(failed("make its mounts private"))?;
    // Any folder will do where the hierarchy is not mounted yet.
    let point = Path::new("/sys");
    mount(
        Some("cgroup2"),
        point,
        Some("cgroup2"),
        MsFlags::empty(),
        None::<&str>,
    )
    .map_err(failed("mount the cgroup v2 hierarchy"))?;
    let is_it = |folder: &Path| fs::metadata(folder).is_ok_and(|found| found.ino() == id);
    let own =
        search(point, is_it)?.ok_or("the agent's cgroup is not in the hierarchy that can be mounted")?;
    if own == point {
        return Err(
            "nothing can be seen above the agent's cgroup: it is the root of this cgroup namespace"
                .to_owned(),
        );
    }
    let above = own.parent().unwrap_or(point);
    let open = File::open(above).map_err(|error| format!("can't open {}: {error}", above.display()))?;
    Ok(Place {
        path: format!("/proc/self/fd/{}", open.as_raw_fd()).into(),
        _open: Some(open),
    })
}

/// The first cgroup from a folder on of which this is true, those nearer to it first.
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
