//! Programs by id, and the load of ours that each is of.

use std::{
    io,
    ops::RangeInclusive,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use lb_abi::{Config, MAGIC, Meta};

use crate::{
    LoaderError,
    sys::{self, READ_ONLY, map::ARRAY, program::Description},
};

/// A program of any owner, kept loaded for as long as this value lives.
#[derive(Debug)]
pub struct HeldProgram {
    fd: OwnedFd,
    description: Description,
}

impl HeldProgram {
    /// Takes hold of a program by its id.
    ///
    /// # Errors
    /// [`LoaderError::Kernel`] with ENOENT if there is none.
    pub fn by_id(id: u32) -> Result<Self, LoaderError> {
        Self::open(id).map_err(LoaderError::kernel(format!("open program {id}")))
    }

    /// As [`by_id`](Self::by_id); `None`: there is none.
    pub fn find(id: u32) -> Result<Option<Self>, LoaderError> {
        match Self::open(id) {
            Ok(program) => Ok(Some(program)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(LoaderError::kernel(format!("open program {id}"))(error)),
        }
    }

    fn open(id: u32) -> io::Result<Self> {
        let fd = sys::program::open(id)?;
        let description = sys::program::describe(fd.as_fd())?;
        Ok(Self { fd, description })
    }

    /// Of a descriptor.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, LoaderError> {
        let description =
            sys::program::describe(fd.as_fd()).map_err(LoaderError::kernel("describe a program"))?;
        Ok(Self { fd, description })
    }

    /// Its id; not used again while the program lives.
    pub const fn id(&self) -> u32 {
        self.description.id
    }

    /// Its name as the kernel keeps it: at most 15 bytes, chosen by its loader, not unique.
    pub fn name(&self) -> &str {
        &self.description.name
    }

    /// Hash of its instructions: equal for two loads of the same program.
    pub const fn tag(&self) -> [u8; 8] {
        self.description.tag
    }

    /// How many instructions the verifier has walked through to accept it; `None` on kernels before 5.16.
    pub(crate) fn processed(&self) -> Option<u32> {
        Some(self.description.processed).filter(|processed| *processed != 0)
    }

    /// `enum bpf_prog_type` of `linux/bpf.h`.
    pub const fn program_type(&self) -> u32 {
        self.description.program_type
    }

    /// When it was loaded, since the machine started.
    pub const fn loaded_at(&self) -> Duration {
        self.description.loaded_at
    }

    /// The user who loaded it.
    pub const fn uid(&self) -> u32 {
        self.description.uid
    }

    /// Ids of the maps it uses.
    pub fn map_ids(&self) -> &[u32] {
        &self.description.map_ids
    }

    /// Whether it is of a Plumbline datapath, of any load and version: one of its maps is a META with our magic.
    pub fn is_ours(&self) -> Result<bool, LoaderError> {
        Ok(meta_among(self.map_ids())?.is_some())
    }

    /// The load of ours that it is of; `None`: it is another project's.
    pub fn load(&self) -> Result<Option<Load>, LoaderError> {
        Load::of(self.map_ids())
    }
}

impl AsFd for HeldProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Ids of all programs that are loaded on this machine, rising.
pub fn program_ids() -> impl Iterator<Item = Result<u32, LoaderError>> {
    sys::program::all().map(|id| id.map_err(LoaderError::kernel("list programs")))
}

/// A load of ours: programs that use one set of maps. Read from META and CONFIG among the maps that a program uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// The id of its META.
    pub meta_id: u32,
    /// Its ABI version, when it was looked at.
    pub abi: u32,
    /// The cookie of the network namespace that CONFIG names. `None`: the program uses no CONFIG, its layout is another
    /// version's, or it has not been written: a load writes it after its programs are loaded.
    pub node: Option<u64>,
}

impl Load {
    /// The load of ours whose maps these are, by id; `None`: META is not among them. They are opened in turn, until META
    /// and CONFIG are found; both are arrays.
    pub fn of(maps: &[u32]) -> Result<Option<Self>, LoaderError> {
        let Some((meta_id, Meta { abi, .. })) = meta_among(maps)? else {
            return Ok(None);
        };
        let mut load = Self {
            meta_id,
            abi,
            node: None,
        };
        // The layout of another version's CONFIG is not known.
        if abi == Meta::CURRENT.abi {
            for id in maps {
                load.node = config_node(*id).map_err(unread(*id))?;
                if load.node.is_some() {
                    break;
                }
            }
        }
        Ok(Some(load))
    }

    /// Whether its programs do anything when they run: they do not once their maps were taken out of use
    /// ([`retire`]), or are gone.
    pub fn is_armed(&self) -> Result<bool, LoaderError> {
        match meta(self.meta_id) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            meta => meta
                .map(|meta| meta.is_some_and(|meta| meta.abi != RETIRED))
                .map_err(LoaderError::kernel(format!("read META {}", self.meta_id))),
        }
    }
}

/// The META among maps, and its id.
fn meta_among(maps: &[u32]) -> Result<Option<(u32, Meta)>, LoaderError> {
    for id in maps {
        if let Some(meta) = meta(*id).map_err(unread(*id))? {
            return Ok(Some((*id, meta)));
        }
    }
    Ok(None)
}

fn unread(map: u32) -> impl FnOnce(io::Error) -> LoaderError {
    LoaderError::kernel(format!("read map {map}"))
}

/// The ABI version of a META whose maps were taken out of use: there is no version 0, so that programs of every version
/// leave everything alone.
const RETIRED: u32 = 0;

/// The META that a map is, of any version; `None`: it is another map. Its magic is ours, and the rest is as found.
fn meta(id: u32) -> io::Result<Option<Meta>> {
    /// Versions to come may be longer; a page is more than any will need, and an array of larger values is not one.
    const LONGEST: usize = 4096;
    let Some(value) = only_value(id, size_of::<Meta>()..=LONGEST)? else {
        return Ok(None);
    };
    let word = |at: usize| {
        let bytes = value.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_ne_bytes(bytes.unwrap_or_default())
    };
    Ok(value.starts_with(&MAGIC).then(|| Meta {
        magic: MAGIC,
        abi: word(8),
        pad: word(12),
    }))
}

/// Takes a load's maps out of use by writing a META with no version: its programs, attached or not, leave everything
/// alone from then on. What versions to come have after the first 16 bytes of META stays. `false`: the map is gone, is
/// no META of ours, or was out of use already.
///
/// # Errors
/// The kernel's own, such as EPERM.
pub fn retire(id: u32) -> io::Result<bool> {
    match meta(id) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(false),
        Err(error) => return Err(error),
        Ok(None | Some(Meta { abi: RETIRED, .. })) => return Ok(false),
        Ok(Some(_)) => {}
    }
    let map = sys::map::open(id, 0)?;
    let size = sys::map::describe(map.as_fd())?.layout.value_size;
    let key = 0_u32;
    let mut value = vec![0_u8; usize::try_from(size).map_err(io::Error::other)?];
    // SAFETY: an array's key is 4 bytes, and the value has the map's size.
    if !unsafe { sys::map::lookup(map.as_fd(), &raw const key, value.as_mut_ptr()) }? {
        return Err(io::ErrorKind::NotFound.into());
    }
    let at = std::mem::offset_of!(Meta, abi);
    let abi = value
        .get_mut(at..at + size_of_val(&RETIRED))
        .ok_or(io::ErrorKind::InvalidData)?;
    abi.copy_from_slice(&RETIRED.to_ne_bytes());
    // SAFETY: as above.
    unsafe { sys::map::update(map.as_fd(), &raw const key, value.as_ptr()) }.map(|()| true)
}

/// The first value of a map that is an array whose values are of one of these sizes, in bytes.
fn only_value(id: u32, sizes: RangeInclusive<usize>) -> io::Result<Option<Vec<u8>>> {
    let map = match sys::map::open(id, READ_ONLY) {
        Ok(map) => map,
        // Its owner forbids reading, which ours never do.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Ok(None),
        Err(error) => return Err(error),
    };
    let layout = sys::map::describe(map.as_fd())?.layout;
    let size = usize::try_from(layout.value_size).unwrap_or(usize::MAX);
    if layout.map_type != ARRAY || !sizes.contains(&size) {
        return Ok(None);
    }
    let key = 0_u32;
    let mut value = vec![0_u8; size];
    // SAFETY: an array's key is 4 bytes, and the value has the map's size.
    let found = unsafe { sys::map::lookup(map.as_fd(), &raw const key, value.as_mut_ptr()) }?;
    Ok(found.then_some(value))
}

/// The network namespace that CONFIG names, if the map is one that was written: the only array of ours with one value
/// of this size.
fn config_node(id: u32) -> io::Result<Option<u64>> {
    const SIZE: usize = size_of::<Config>();
    const AT: usize = std::mem::offset_of!(Config, node_netns);
    let value = only_value(id, SIZE..=SIZE)?;
    Ok(value
        .as_deref()
        .and_then(|value| value.get(AT..AT + 8)?.try_into().ok())
        .map(u64::from_ne_bytes)
        .filter(|node| *node != 0))
}
