//! The hierarchy of cgroups, from its root down, and what is attached to each.
//!
//! A mount shows a part: that below the root of the cgroup namespace in which it was made, or below the folder that was
//! mounted. Programs of the cgroups above run for its sockets all the same. So folders are opened by handle, which
//! takes CAP_DAC_READ_SEARCH and leads everywhere: the root has the id 1, and the folders' numbers are their ids.
//! Nothing that is mounted over a folder is in the way either.

use std::{
    collections::HashMap,
    fs, io,
    os::{
        fd::{AsFd as _, AsRawFd as _},
        unix::fs::DirEntryExt as _,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use lb_loader::{Blind, Cgroup, LoaderError, mount_points};

use super::CgroupState;

/// Most cgroups that are looked at; a node has some for each container and unit, a thousand if it is large.
const MOST: usize = 50_000;
/// How long that may take.
const TIME: Duration = Duration::from_secs(10);
/// The id of a hierarchy's root.
const ROOT: u64 = 1;

/// The hierarchy that a cgroup is of.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    cgroup: Cgroup,
    /// Where it is mounted: ids of the folders that are mounted, and where.
    mounts: HashMap<u64, PathBuf>,
}

/// A cgroup that was found.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) cgroup: Cgroup,
    /// As a mount shows it.
    pub(crate) path: Option<PathBuf>,
}

/// A cgroup that a walk has met and not opened yet: descriptors are few, and cgroups side by side may be many.
#[derive(Debug)]
struct Unopened {
    id: u64,
    /// As a mount shows it.
    path: Option<PathBuf>,
    above: Option<u64>,
}

/// What a walk has seen.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// Every cgroup, and the one above it.
    above: HashMap<u64, Option<u64>>,
    pub(crate) blind: Vec<Blind>,
}

/// Where a cgroup is, seen from the node's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relation {
    Own,
    Below,
    Above,
    Beside,
}

/// How opening a cgroup by its id ended.
#[derive(Debug)]
pub(crate) enum Opened {
    Cgroup(Cgroup),
    /// There is no such cgroup any more.
    Gone,
    /// Without CAP_DAC_READ_SEARCH, or on a kernel that has no handles of cgroups.
    Refused(io::Error),
}

impl Hierarchy {
    /// Of a cgroup.
    pub(crate) fn of(cgroup: Cgroup) -> Result<Self, LoaderError> {
        Ok(Self {
            cgroup,
            mounts: mounted()?.into_iter().collect(),
        })
    }

    /// Of whatever cgroup2 file system is mounted in this mount namespace.
    pub(crate) fn any() -> Result<Self, LoaderError> {
        let Some((_, point)) = mounted()?.into_iter().next() else {
            return Err(LoaderError::path(
                "find a cgroup2 file system in",
                "/proc/thread-self/mountinfo",
            )(io::ErrorKind::NotFound.into()));
        };
        Self::of(Cgroup::open(&point)?)
    }

    /// The node's cgroup.
    pub(crate) const fn id(&self) -> u64 {
        self.cgroup.id()
    }

    /// Opens a cgroup by its id.
    pub(crate) fn open(&self, id: u64) -> Opened {
        match self.cgroup.by_id(id) {
            Ok(cgroup) => Opened::Cgroup(cgroup),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESTALE | libc::ENOENT)) => Opened::Gone,
            Err(error) => Opened::Refused(error),
        }
    }

    /// Calls `each` with the node's cgroup alone.
    pub(crate) fn own(
        &self,
        each: impl FnOnce(&Group) -> Result<(), LoaderError>,
    ) -> Result<Walked, LoaderError> {
        let cgroup = self.cgroup.try_clone();
        each(&Group {
            cgroup: cgroup.map_err(LoaderError::kernel(format!("open {}", self.cgroup)))?,
            path: self.cgroup.path().map(Path::to_owned),
        })?;
        Ok(Walked {
            above: HashMap::from([(self.id(), None)]),
            blind: Vec::new(),
        })
    }

    /// Calls `each` with every cgroup, those above first.
    pub(crate) fn walk(
        &self,
        mut each: impl FnMut(&Group) -> Result<(), LoaderError>,
    ) -> Result<Walked, LoaderError> {
        let mut walked = Walked::default();
        let (mut stack, by_handle) = self.roots(&mut walked);
        let begun = Instant::now();
        while let Some(Unopened { id, path, above }) = stack.pop() {
            if walked.above.len() >= MOST || begun.elapsed() > TIME {
                walked.blind.push(Blind {
                    what: format!("more than {} cgroups", walked.above.len()),
                    why: format!("no more than {MOST} are looked at, for {} s", TIME.as_secs()),
                    remedy: "remove those that nothing runs in".to_owned(),
                });
                break;
            }
            // A folder that is mounted in two places is seen twice without handles.
            if walked.above.contains_key(&id) {
                continue;
            }
            let Some(cgroup) = self.open_met(id, path.as_deref(), by_handle)? else {
                continue;
            };
            walked.above.insert(id, above);
            let group = Group { cgroup, path };
            each(&group)?;
            let below = self.below(&group);
            let below = below.map_err(LoaderError::kernel(format!("list the cgroups below {id}")))?;
            stack.extend(below);
        }
        Ok(walked)
    }

    /// Opens a cgroup that a walk has met; `None`: it is gone.
    fn open_met(&self, id: u64, path: Option<&Path>, by_handle: bool) -> Result<Option<Cgroup>, LoaderError> {
        let opened = match path {
            _ if by_handle => self
                .cgroup
                .by_id(id)
                .map_err(LoaderError::kernel(format!("open cgroup {id}"))),
            Some(path) => Cgroup::open(path),
            None => return Ok(None),
        };
        match opened {
            Err(error) if is_gone(error.errno()) => Ok(None),
            // Another of the name may be there by now.
            opened => opened.map(|cgroup| Some(cgroup).filter(|cgroup| cgroup.id() == id)),
        }
    }

    /// Where a walk begins: at the root, or, if that can't be opened, at what is mounted. Whether by handle.
    fn roots(&self, walked: &mut Walked) -> (Vec<Unopened>, bool) {
        let why = match self.open(ROOT) {
            Opened::Cgroup(_) => {
                let root = Unopened {
                    id: ROOT,
                    path: self.mounts.get(&ROOT).cloned(),
                    above: None,
                };
                return (vec![root], true);
            }
            Opened::Gone => "the kernel does not open cgroups by handle".to_owned(),
            Opened::Refused(error) => error.to_string(),
        };
        if !self.mounts.contains_key(&ROOT) {
            walked.blind.push(Blind {
                what: "cgroups that no mount shows, those above the node's among them".to_owned(),
                why: format!("{why}: they are opened by handle"),
                remedy:
                    "grant CAP_DAC_READ_SEARCH, or mount the whole hierarchy: no cgroup namespace of its own"
                        .to_owned(),
            });
        }
        let mounts = self.mounts.iter().map(|(id, point)| Unopened {
            id: *id,
            path: Some(point.clone()),
            above: None,
        });
        let mut roots: Vec<Unopened> = mounts.collect();
        // The one that shows most comes first, so that what is below it is known to be.
        roots.sort_by_key(|root| std::cmp::Reverse(root.id));
        (roots, false)
    }

    /// The cgroups right below one.
    fn below(&self, group: &Group) -> io::Result<Vec<Unopened>> {
        let folder = format!("/proc/self/fd/{}", group.cgroup.as_fd().as_raw_fd());
        let entries = match fs::read_dir(&folder) {
            Err(error) if is_gone(error.raw_os_error()) => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut below = Vec::new();
        for entry in entries {
            let entry = match entry {
                Err(error) if is_gone(error.raw_os_error()) => continue,
                entry => entry?,
            };
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let id = entry.ino();
            let here = || group.path.as_ref().map(|path| path.join(entry.file_name()));
            below.push(Unopened {
                id,
                path: self.mounts.get(&id).cloned().or_else(here),
                above: Some(group.cgroup.id()),
            });
        }
        // The last is taken first: by name.
        below.sort_by(|one, other| other.path.cmp(&one.path).then(other.id.cmp(&one.id)));
        Ok(below)
    }
}

impl Group {
    pub(crate) const fn state(&self) -> CgroupState {
        match self.path {
            Some(_) => CgroupState::Visible,
            None => CgroupState::Hidden,
        }
    }
}

impl Walked {
    /// Where a cgroup is, seen from another.
    pub(crate) fn relation(&self, id: u64, node: u64) -> Relation {
        if id == node {
            Relation::Own
        } else if self.is_above(node, id) {
            Relation::Below
        } else if self.is_above(id, node) {
            Relation::Above
        } else {
            Relation::Beside
        }
    }

    /// Whether one is above the other.
    fn is_above(&self, one: u64, other: u64) -> bool {
        let next = |id: &u64| self.above.get(id).copied().flatten();
        std::iter::successors(next(&other), next).any(|above| above == one)
    }
}

const fn is_gone(error: Option<i32>) -> bool {
    matches!(error, Some(libc::ESTALE | libc::ENOENT | libc::ENODEV))
}

/// Ids of the folders that are mounted, and where; without those that something else is mounted over.
fn mounted() -> Result<Vec<(u64, PathBuf)>, LoaderError> {
    const SELF: &str = "/proc/thread-self";
    let points = mount_points("cgroup2").map_err(LoaderError::path("read the mounts of", SELF))?;
    let mounted = points
        .into_iter()
        .filter_map(|point| Some((Cgroup::open(&point).ok()?.id(), point)));
    Ok(mounted.collect())
}
