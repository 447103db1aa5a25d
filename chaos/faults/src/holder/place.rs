//! Cgroups near the agent's.

use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
    process, thread,
};

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};

use crate::notes::{Deed, Note, folder};

/// Most cgroups that are looked at.
const CGROUPS: usize = 65_536;

/// A cgroup, and what keeps its path open.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    _kept: Kept,
}

/// What keeps a path open.
#[derive(Debug)]
enum Kept {
    Nothing,
    File { _open: File },
    Mount { _mount: Mount },
}

/// A mount that ends with this, and its folder.
#[derive(Debug)]
struct Mount {
    at: PathBuf,
    note: Note,
}

impl Place {
    /// The agent's.
    pub(super) fn own(cgroup: &Path) -> Self {
        Self {
            path: cgroup.to_owned(),
            _kept: Kept::Nothing,
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

    /// The one right above it, by a mount of the whole hierarchy that nobody else sees.
    pub(super) fn above(cgroup: &Path) -> Result<Self, String> {
        let id = cgroup_id(cgroup)?;
        thread::scope(|scope| {
            let found = scope.spawn(|| open_above(id));
            found
                .join()
                .unwrap_or_else(|_| Err("the thread that looked panicked".to_owned()))
        })
    }

    /// The same, by a mount that everybody on the node sees until this ends.
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
    /// A folder of this process's own, and on it what `mounting` mounts there.
    fn make(name: &str, mounting: impl FnOnce(&Path) -> nix::Result<()>) -> Result<Self, String> {
        let at = folder().join(format!("plumbline-{name}-{}", process::id()));
        let failed =
            |what: &str, why: &dyn std::fmt::Display| format!("can't {what} {}: {why}", at.display());
        let note = Note::write(Deed::Mounted { at: at.clone() })?;
        // From here on what was made goes with it.
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

/// Takes away what is mounted on a folder, and the folder; whether it was there.
pub(crate) fn unmount(at: &Path) -> Result<bool, String> {
    match umount2(at, MntFlags::MNT_DETACH) {
        // Nothing was mounted there yet, or not any more.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => remove_folder(at),
        Err(errno) => Err(errno.to_string()),
    }
}

/// Removes an empty folder, a cgroup where nobody is say; whether it was there.
pub(crate) fn remove_folder(folder: &Path) -> Result<bool, String> {
    match fs::remove_dir(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.to_string()),
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
    mount_hierarchy(point).map_err(failed("mount the cgroup v2 hierarchy"))?;
    let above = search_above(point, id)?;
    let open = File::open(&above).map_err(|error| format!("can't open {}: {error}", above.display()))?;
    Ok(Place {
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

/// The number of a cgroup's folder, which is its id.
pub(crate) fn cgroup_id(cgroup: &Path) -> Result<u64, String> {
    let metadata = fs::metadata(cgroup);
    metadata
        .map(|metadata| metadata.ino())
        .map_err(|error| format!("can't look at {}: {error}", cgroup.display()))
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
