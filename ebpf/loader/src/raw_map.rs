//! Maps of any owner, by id, in bytes: to be read, never written.

use std::{
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    path::Path,
    ptr,
};

use crate::{
    LoaderError,
    sys::{
        self, READ_ONLY, WRITE_ONLY,
        map::{Description, LRU_PERCPU_HASH, Layout, PERCPU_ARRAY, PERCPU_HASH},
    },
};

/// A map of any owner, to be read; it stays there for as long as this value lives.
#[derive(Debug)]
pub struct RawMap {
    fd: OwnedFd,
    description: Description,
    /// Bytes that the kernel writes for one value.
    value: usize,
}

/// One entry of a map, as bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RawEntry {
    /// As many as the map's keys have.
    pub key: Vec<u8>,
    /// As in [`RawMap::get`].
    pub value: Vec<u8>,
}

impl RawMap {
    /// Opens a map by its id; `None`: there is none.
    ///
    /// # Errors
    /// [`LoaderError::Kernel`] with EPERM if its owner forbids reading.
    pub fn open(id: u32) -> Result<Option<Self>, LoaderError> {
        let failed = || LoaderError::kernel(format!("open map {id}"));
        let fd = match sys::map::open(id, READ_ONLY) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            fd => fd.map_err(failed())?,
        };
        Self::new(id, fd).map(Some)
    }

    /// Opens what is pinned at a path; `None`: it is no map.
    ///
    /// # Errors
    /// Nothing is pinned there, or it can't be opened.
    pub fn pinned(path: &Path) -> Result<Option<Self>, LoaderError> {
        let failed = || LoaderError::path("open what is pinned at", path);
        // Links are not opened for reading alone.
        let fd = sys::open_pinned(path, 0).map_err(failed())?;
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).map_err(failed())?;
        let id = info
            .lines()
            .find_map(|line| line.strip_prefix("map_id:")?.trim().parse().ok());
        id.map(|id| Self::new(id, fd)).transpose()
    }

    fn new(id: u32, fd: OwnedFd) -> Result<Self, LoaderError> {
        let failed = LoaderError::kernel(format!("look at map {id}"));
        let description = sys::map::describe(fd.as_fd()).map_err(failed)?;
        let value = bytes_of_value(description.layout)?;
        Ok(Self {
            fd,
            description,
            value,
        })
    }

    /// Its id; not used again while the map lives.
    pub const fn id(&self) -> u32 {
        self.description.id
    }

    /// All that the kernel tells of it.
    pub const fn info(&self) -> &Description {
        &self.description
    }

    /// Its type and sizes.
    pub const fn layout(&self) -> Layout {
        self.description.layout
    }

    /// The value of a key; `None`: there is no such key, or the key has another length than the map's keys. Of a map
    /// that has a value for each processor: all of them one after the other, each padded to a multiple of 8 bytes. Of a
    /// map of maps or programs: an id.
    ///
    /// # Errors
    /// Some types of maps can't be read (EOPNOTSUPP).
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LoaderError> {
        if key.len() != self.key_size() {
            return Ok(None);
        }
        let mut value = vec![0_u8; self.value];
        // SAFETY: the key has the map's size, and the value that which the kernel writes for its type.
        let found = unsafe { sys::map::lookup(self.fd.as_fd(), key.as_ptr(), value.as_mut_ptr()) }
            .map_err(self.failed())?;
        Ok(found.then_some(value))
    }

    /// Keys and values, in the kernel's order, of at most this many keys. Of a map that is written meanwhile, some may
    /// be missing, and some be there twice: where the key that was read last is removed, the kernel begins anew.
    pub fn entries(&self, most: usize) -> Result<Vec<RawEntry>, LoaderError> {
        let mut entries = Vec::new();
        let mut last: Option<Vec<u8>> = None;
        for _ in 0..most {
            let mut key = vec![0_u8; self.key_size()];
            let after = last.as_ref().map_or(ptr::null(), Vec::as_ptr);
            // SAFETY: a key or none, and room for one.
            let more = unsafe { sys::map::next_key(self.fd.as_fd(), after, key.as_mut_ptr()) };
            if !more.map_err(self.failed())? {
                break;
            }
            if let Some(value) = self.get(&key)? {
                entries.push(RawEntry {
                    key: key.clone(),
                    value,
                });
            }
            last = Some(key);
        }
        Ok(entries)
    }

    fn key_size(&self) -> usize {
        usize::try_from(self.description.layout.key_size).unwrap_or(usize::MAX)
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> LoaderError + use<> {
        let id = self.description.id;
        // Made for each entry that is read, of which there may be hundreds of thousands.
        move |source| LoaderError::kernel(format!("read map {id}"))(source)
    }
}

/// Ids of all maps on this machine, rising.
pub fn map_ids() -> impl Iterator<Item = Result<u32, LoaderError>> {
    sys::map::all().map(|id| id.map_err(LoaderError::kernel("list maps")))
}

/// Describes a map by its id, also one whose owner forbids reading; `None`: there is none.
///
/// # Errors
/// [`LoaderError::Kernel`] with EPERM or EACCES where a security module keeps it from root.
pub fn describe_map(id: u32) -> Result<Option<Description>, LoaderError> {
    let opened = match sys::map::open(id, READ_ONLY) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
            sys::map::open(id, WRITE_ONLY)
        }
        opened => opened,
    };
    match opened {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        opened => opened
            .and_then(|map| sys::map::describe(map.as_fd()))
            .map(Some)
            .map_err(LoaderError::kernel(format!("look at map {id}"))),
    }
}

/// Bytes that the kernel reads and writes for one value of a map.
pub(crate) fn bytes_of_value(layout: Layout) -> Result<usize, LoaderError> {
    let size = usize::try_from(layout.value_size).unwrap_or(usize::MAX);
    if !is_per_processor(layout.map_type) {
        return Ok(size);
    }
    let processors =
        aya::util::nr_cpus().map_err(|(path, source)| LoaderError::path("read", path)(source))?;
    Ok(size.next_multiple_of(8) * processors)
}

/// Whether a map of this type has a value for each processor.
const fn is_per_processor(map_type: u32) -> bool {
    /// `BPF_MAP_TYPE_PERCPU_CGROUP_STORAGE`.
    const CGROUP_STORAGE: u32 = 21;
    matches!(
        map_type,
        PERCPU_HASH | PERCPU_ARRAY | LRU_PERCPU_HASH | CGROUP_STORAGE
    )
}
