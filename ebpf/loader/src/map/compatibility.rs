//! Whether pinned maps are of this version.

use std::{
    fmt, io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use lb_abi::{ABI_VERSION, FORMER_NAMES, MAGIC, Meta};

use crate::{
    LoaderError, MapName, View,
    sys::{self, map::Layout},
};

/// Why a set of maps can't be used.
#[derive(Debug)]
pub(crate) enum Mismatch {
    Absent,
    Missing(MapName),
    Layout {
        map: MapName,
        expected: Layout,
        found: Layout,
    },
    Meta(Meta),
    Unreadable {
        map: MapName,
        source: io::Error,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("there is no such folder"),
            Self::Missing(map) => write!(f, "{map} is missing"),
            Self::Layout { map, expected, found } => {
                write!(
                    f,
                    "{map} has another layout: expected {expected:?}, with at least {} entries, found {found:?}",
                    map.least()
                )
            }
            Self::Meta(Meta { magic, abi, .. }) => {
                write!(
                    f,
                    "META says ABI version {abi} ({magic:02x?}), expected {ABI_VERSION} ({MAGIC:02x?})"
                )
            }
            Self::Unreadable { map, source } => write!(f, "{map} can't be read: {source}"),
        }
    }
}

/// The pin of a map. An agent of an earlier version that still runs has it by its former name.
fn pin(folder: &Path, map: MapName) -> PathBuf {
    let of_name = folder.join(map.name());
    let former = FORMER_NAMES.into_iter().find(|(_, name)| *name == map.name());
    match former.map(|(former, _)| folder.join(former)) {
        Some(former) if former.exists() && !of_name.exists() => former,
        _ => of_name,
    }
}

/// Opens one pinned map.
pub(crate) fn open(folder: &Path, name: MapName, flags: u32) -> Result<OwnedFd, LoaderError> {
    let path = pin(folder, name);
    sys::open_pinned(&path, flags).map_err(LoaderError::path("open the pinned map", path))
}

/// Whether a folder holds a whole set of this version's maps. aya, which opens them by name, looks at nothing but
/// the name.
pub(crate) fn inspect(folder: &Path) -> Result<(), Mismatch> {
    if !folder.exists() {
        return Err(Mismatch::Absent);
    }
    for map in MapName::PINNED {
        open_checked(folder, map)?;
    }
    meta(folder).and_then(|meta| {
        if meta == Meta::CURRENT {
            Ok(())
        } else {
            Err(Mismatch::Meta(meta))
        }
    })
}

/// A pinned map, if its layout is right.
fn open_checked(folder: &Path, map: MapName) -> Result<OwnedFd, Mismatch> {
    let unreadable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => Mismatch::Missing(map),
        _ => Mismatch::Unreadable { map, source },
    };
    let fd = sys::open_pinned(&pin(folder, map), sys::READ_ONLY).map_err(unreadable)?;
    let found = sys::map::describe(fd.as_fd()).map_err(unreadable)?.layout;
    if map.fits(found) {
        Ok(fd)
    } else {
        let expected = map.layout();
        Err(Mismatch::Layout { map, expected, found })
    }
}

/// Whether a folder holds maps of this ABI version.
pub(crate) fn is_current(folder: &Path) -> bool {
    meta(folder).is_ok_and(|meta| meta == Meta::CURRENT)
}

/// Whether a map is pinned in a folder, and laid out as it should be.
pub(crate) fn fits(folder: &Path, map: MapName) -> bool {
    open_checked(folder, map).is_ok()
}

fn meta(folder: &Path) -> Result<Meta, Mismatch> {
    let view = View::<u32, Meta>::new(MapName::Meta, open_checked(folder, MapName::Meta)?);
    let absent = || io::Error::from(io::ErrorKind::NotFound);
    view.get(&0)
        .map_err(|error| error.source)
        .and_then(|meta| meta.ok_or_else(absent))
        .map_err(|source| Mismatch::Unreadable {
            map: MapName::Meta,
            source,
        })
}
