//! Where maps and links are pinned, and how one set of maps takes another's place.
//!
//! ```text
//! BPFFS/plumbline            locked by the process that writes the maps
//!   v1/maps/NAME             the set that the attached programs use
//!   v1/maps-next/NAME        a set in the making, or in waiting until the programs are switched to it
//!   v1/maps-old/NAME         a set that was replaced, about to go
//!   v1/links/HOOK            the link that attaches a program to the cgroup
//!   v1/devices/INDEX-ingress the link that attaches one to a network device; -egress likewise
//!   v1/…/…-next              a new link, about to take the place of one that is no longer attached here
//!   …                        another version's; goes when this one is attached
//! ```
//!
//! A set is complete when it is renamed to `maps`, in one step. A process that is killed between any two steps
//! leaves what [`Pins::recover`] understands:
//!
//! | left | meaning | then |
//! |---|---|---|
//! | `maps` | ordinary | what else is there goes |
//! | no `maps`, whole `maps-next`, `maps-old` | killed between the renames | `maps-next` becomes `maps` |
//! | neither `maps` nor `maps-old` | killed before the set was filled, beside programs whose pins are gone | it goes |
//!
//! Names on a bpffs hold no dot: the kernel reserves it.

use std::{
    fs, io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use lb_abi::{FORMER_NAMES, Meta};

use super::compatibility::{fits, inspect, is_current, open};
use crate::{
    Direction, Hook, LoaderError, MapName,
    sys::{
        self,
        link::{self, Target},
    },
};

/// What a new set takes over from one of the same ABI version: the very maps, so that nothing that the old programs
/// write while the new ones are put in their place is lost.
///
/// SOCKET_REVNAT and SOCKET_BACKEND, of whatever size: sockets keep showing their frontends; otherwise those from before show their backends.
/// FRAGMENTS: datagrams of which a part has passed. CONNTRACK: connections go on; [`carry`](super::carry) gives them their
/// new ids, and copies AFFINITY. Where pins lead to no such CONNTRACK, programs that run do
/// ([`connections`](crate::connections)); their sockets find their frontends anew, or show their backends.
const CARRIED: [MapName; 4] = [
    MapName::SocketRevnat,
    MapName::SocketBackend,
    MapName::Fragments,
    MapName::Conntrack,
];

/// A set in the making.
#[derive(Debug)]
pub(crate) struct Next {
    /// Where it is pinned.
    pub(crate) folder: PathBuf,
    /// Of [`CARRIED`], those that are there and are not taken over.
    pub(crate) lost: Vec<MapName>,
    /// Whether CONNTRACK is that of programs whose set is pinned nowhere.
    pub(crate) from_programs: bool,
}

/// The folder of this version's pins.
const OURS: &str = "v1";

/// The folders below a bpffs.
#[derive(Clone, Debug)]
pub(crate) struct Pins {
    root: PathBuf,
}

impl Pins {
    pub(crate) fn new(bpffs: &Path) -> Self {
        Self {
            root: bpffs.join("plumbline"),
        }
    }

    /// What is locked, and all that is ever removed.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn maps(&self) -> PathBuf {
        self.root.join("v1/maps")
    }

    pub(crate) fn maps_next(&self) -> PathBuf {
        self.root.join("v1/maps-next")
    }

    fn maps_old(&self) -> PathBuf {
        self.root.join("v1/maps-old")
    }

    pub(crate) fn link(&self, hook: Hook) -> PathBuf {
        self.root.join("v1/links").join(hook.name())
    }

    fn devices(&self) -> PathBuf {
        self.root.join("v1/devices")
    }

    pub(crate) fn device(&self, index: u32, direction: Direction) -> PathBuf {
        self.devices().join(format!("{index}-{direction}"))
    }

    /// Makes the folders.
    pub(crate) fn create(&self) -> Result<(), LoaderError> {
        for folder in [self.root.join("v1/links"), self.devices()] {
            fs::create_dir_all(&folder).map_err(LoaderError::path("create", folder))?;
        }
        Ok(())
    }

    /// Puts in order what a process that was killed has left (see the table above).
    pub(crate) fn recover(&self) -> Result<(), LoaderError> {
        for set in [self.maps(), self.maps_next()] {
            // Pins of an earlier version, whose programs find their maps by themselves. Killed in between, the next start goes on.
            for (former, name) in FORMER_NAMES {
                let pin = set.join(former);
                if pin.exists() {
                    rename(&pin, &set.join(name))?;
                }
            }
        }
        // Only what was filled is put in the place of a set.
        if !self.maps().exists() && self.maps_old().exists() && inspect(&self.maps_next()).is_ok() {
            rename(&self.maps_next(), &self.maps())?;
        }
        remove_set(&self.maps_next())?;
        remove_set(&self.maps_old())
    }

    /// Starts a set in `maps-next`. Of a set of this ABI version that is there, those of [`CARRIED`] are taken over
    /// whose layout is right; in place of a CONNTRACK that is not, that of the programs `in_use`, if there are any.
    pub(crate) fn begin_next(
        &self,
        in_use: impl FnOnce() -> Result<Option<OwnedFd>, LoaderError>,
    ) -> Result<Next, LoaderError> {
        let folder = self.maps_next();
        fs::create_dir(&folder).map_err(LoaderError::path("create", &folder))?;
        let current = is_current(&self.maps());
        let mut lost = Vec::new();
        let taken = |name: MapName, map: OwnedFd| {
            let path = folder.join(name.name());
            sys::pin(map.as_fd(), &path).map_err(LoaderError::path("pin", path))
        };
        for name in CARRIED {
            if current && fits(&self.maps(), name) {
                taken(name, open(&self.maps(), name, 0)?)?;
            } else if self.maps().join(name.name()).exists() {
                lost.push(name);
            }
        }
        let mut from_programs = false;
        if !folder.join(MapName::Conntrack.name()).exists()
            && let Some(flows) = in_use()?
        {
            taken(MapName::Conntrack, flows)?;
            lost.retain(|name| *name != MapName::Conntrack);
            from_programs = true;
        }
        Ok(Next {
            folder,
            lost,
            from_programs,
        })
    }

    /// Removes what other versions of this agent have pinned in folders of their own, which ends what they attach by
    /// links that no process holds; returns which folders.
    pub(crate) fn remove_others(&self) -> Result<Vec<PathBuf>, LoaderError> {
        let failed = || LoaderError::path("list", &self.root);
        let mut removed = Vec::new();
        let entries = match fs::read_dir(&self.root) {
            // All pins were removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(removed),
            entries => entries.map_err(failed())?,
        };
        for entry in entries {
            let entry = entry.map_err(failed())?;
            if entry.file_name() != OURS {
                let path = entry.path();
                remove_set(&path)?;
                removed.push(path);
            }
        }
        Ok(removed)
    }

    /// Writes META, which makes the set in `maps-next` whole.
    pub(crate) fn finish_next(&self) -> Result<(), LoaderError> {
        let meta = open(&self.maps_next(), MapName::Meta, 0)?;
        let (key, value) = (0_u32, Meta::CURRENT);
        // SAFETY: the sizes of META's key and value, which the object was checked to have.
        unsafe { sys::map::update(meta.as_fd(), &raw const key, &raw const value) }
            .map_err(LoaderError::kernel("write META"))
    }

    /// Puts the set in `maps-next`, if there is one, in the place of `maps`; what was there goes, also if it was left by a
    /// call that failed.
    pub(crate) fn commit_next(&self) -> Result<(), LoaderError> {
        if self.maps_next().exists() {
            if self.maps().exists() {
                rename(&self.maps(), &self.maps_old())?;
            }
            rename(&self.maps_next(), &self.maps())?;
        }
        remove_set(&self.maps_old())
    }

    /// Finishes what [`pin_link`](Self::pin_link) was killed at.
    pub(crate) fn recover_link(&self, pin: &Path) -> Result<(), LoaderError> {
        let next = next(pin);
        if next.exists() { rename(&next, pin) } else { Ok(()) }
    }

    /// Pins a link in the place of whatever link was pinned there, which must not be attached here any more.
    pub(crate) fn pin_link(&self, pin: &Path, link: BorrowedFd<'_>) -> Result<(), LoaderError> {
        let next = next(pin);
        sys::pin(link, &next).map_err(LoaderError::path("pin", &next))?;
        rename(&next, pin)
    }

    /// Removes a pin; not there is no error.
    pub(crate) fn unpin(&self, pin: &Path) -> Result<(), LoaderError> {
        match fs::remove_file(pin) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LoaderError::path("remove", pin)(error))
            }
            _ => Ok(()),
        }
    }

    /// Removes the pins of links whose devices are gone.
    pub(crate) fn sweep_devices(&self) -> Result<(), LoaderError> {
        let mut pinned = Vec::new();
        list(&self.devices(), &mut pinned).map_err(LoaderError::path("list", self.devices()))?;
        for pin in pinned {
            let link = sys::open_pinned(&pin, 0).map_err(LoaderError::path("open the pinned link", &pin))?;
            let link = link::describe(link.as_fd()).map_err(LoaderError::path("look at the link", &pin))?;
            if matches!(link.target, Target::Device { ifindex: 0, .. }) {
                self.unpin(&pin)?;
            }
        }
        Ok(())
    }

    /// Ids of the programs that pinned links carry.
    pub(crate) fn linked_programs(&self) -> Result<Vec<u32>, LoaderError> {
        let mut pinned = Vec::new();
        for folder in [self.root.join("v1/links"), self.devices()] {
            match list(&folder, &mut pinned) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(LoaderError::path("list", folder)(error));
                }
                _ => {}
            }
        }
        let mut programs = Vec::new();
        for pin in pinned {
            let link = sys::open_pinned(&pin, 0).map_err(LoaderError::path("open the pinned link", &pin))?;
            let link = link::describe(link.as_fd()).map_err(LoaderError::path("look at the link", &pin))?;
            programs.push(link.program_id);
        }
        Ok(programs)
    }

    /// The id of the pinned META, if there is one.
    pub(crate) fn meta_id(&self) -> Result<Option<u32>, LoaderError> {
        let path = self.maps().join(MapName::Meta.name());
        match sys::open_pinned(&path, sys::READ_ONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened
                .and_then(|map| sys::map::describe(map.as_fd()))
                .map(|map| Some(map.id))
                .map_err(LoaderError::path("look at the pinned map", path)),
        }
    }

    /// Removes everything, and says what was pinned.
    pub(crate) fn remove_all(&self) -> Result<Vec<PathBuf>, LoaderError> {
        let mut pinned = Vec::new();
        list(&self.root, &mut pinned).map_err(LoaderError::path("list", &self.root))?;
        remove_set(&self.root)?;
        pinned.sort();
        Ok(pinned)
    }
}

/// Where a link is pinned first.
fn next(pin: &Path) -> PathBuf {
    let mut name = pin.as_os_str().to_owned();
    name.push("-next");
    name.into()
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn rename(from: &Path, to: &Path) -> Result<(), LoaderError> {
    fs::rename(from, to).map_err(LoaderError::path("rename", from))
}

fn remove_set(folder: &Path) -> Result<(), LoaderError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(LoaderError::path("remove", folder)(error))
        }
        _ => Ok(()),
    }
}
