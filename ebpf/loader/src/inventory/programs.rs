//! Descriptions of programs and maps, each looked at once, and whose programs are.

use std::{
    collections::{BTreeSet, HashMap, HashSet, hash_map::Entry},
    io,
    os::fd::{AsFd as _, BorrowedFd},
};

use lb_abi::{Config, Meta};

use super::{MapDescription, ProgramDescription, names};
use crate::{
    HeldProgram, LoaderError, Ownership, node,
    program::{meta, only_value},
    sys::{self, READ_ONLY},
};

/// Programs by id. An id is not given again before the kernel has gone through all two thousand million.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    known: HashMap<u32, Known>,
    /// Those that were seen to stay loaded though nothing that can be seen keeps them.
    lasting: HashSet<u32>,
}

/// A program that was looked at.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) description: ProgramDescription,
    /// The META it uses, if it is ours.
    pub(crate) meta: Option<Marked>,
    /// The cookie of the network namespace that its CONFIG names, if it uses one that can be read. Until CONFIG has been
    /// written there is none; a load writes it after its programs are there.
    node: Option<u64>,
}

/// A map META.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marked {
    pub(crate) map_id: u32,
    /// When it was looked at.
    pub(crate) abi: u32,
}

impl Programs {
    /// Looks at every program that is loaded and was not looked at before, or did not say yet of which node it is, and
    /// forgets those that are gone.
    pub(crate) fn refresh(&mut self) -> Result<(), LoaderError> {
        let mut loaded = HashSet::new();
        for id in sys::program::all() {
            let id = id.map_err(LoaderError::kernel("list programs"))?;
            loaded.insert(id);
            self.get(id)?;
        }
        self.known.retain(|id, _| loaded.contains(id));
        self.lasting.retain(|id| loaded.contains(id));
        Ok(())
    }

    /// Those that were not seen to stay loaded without a keeper.
    pub(crate) fn not_lasting(&self, ids: impl Iterator<Item = u32>) -> Vec<u32> {
        ids.filter(|id| !self.lasting.contains(id)).collect()
    }

    /// Remembers of programs that they stay loaded without a keeper.
    pub(crate) fn last(&mut self, ids: impl Iterator<Item = u32>) {
        self.lasting.extend(ids);
    }

    /// Looks at a program, if it was not looked at before and is there.
    pub(crate) fn get(&mut self, id: u32) -> Result<(), LoaderError> {
        let failed = || LoaderError::kernel(format!("look at program {id}"));
        match self.known.entry(id) {
            Entry::Vacant(unknown) => {
                if let Some(program) = HeldProgram::find(id)? {
                    unknown.insert(look(&program).map_err(failed())?);
                }
            }
            Entry::Occupied(mut known) if known.get().meta.is_some() && known.get().node.is_none() => {
                let known = known.get_mut();
                known.node = match config_of(known.meta, known.description.maps.iter().map(|map| map.id)) {
                    // The program has just gone, and its maps with it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    node => node.map_err(failed())?,
                };
            }
            Entry::Occupied(_) => {}
        }
        Ok(())
    }

    /// One that was looked at.
    pub(crate) fn known(&self, id: u32) -> Option<&Known> {
        self.known.get(&id)
    }

    /// Those that are known, by id.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Known> {
        let mut all: Vec<&Known> = self.known.values().collect();
        all.sort_unstable_by_key(|known| known.description.id);
        all.into_iter()
    }

    /// The cookie of the network namespace that the load of a program was made for: by its own CONFIG, or that of
    /// another program of the same load. `None`: nobody knows.
    pub(crate) fn node(&self, known: &Known) -> Option<u64> {
        known.node.or_else(|| {
            let load = known.meta?.map_id;
            let same = |other: &&Known| other.meta.is_some_and(|meta| meta.map_id == load);
            self.known.values().filter(same).find_map(|other| other.node)
        })
    }
}

/// Ids of the programs of ours, of any load, that are known to have been loaded for the calling thread's network
/// namespace: their CONFIG, or that of their load, names it, in a layout that this version knows. Of those that are not
/// among them nobody knows, or they are another node's.
pub fn programs_of_this_node() -> Result<BTreeSet<u32>, LoaderError> {
    let namespace = node::namespace_cookie()?;
    let mut programs = Programs::default();
    programs.refresh()?;
    let here = |known: &&Known| namespace != 0 && programs.node(known) == Some(namespace);
    Ok(programs
        .all()
        .filter(here)
        .map(|known| known.description.id)
        .collect())
}

/// What counts as whose.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    /// Ids of the programs that are [`Ownership::Current`].
    pub(crate) programs: HashSet<u32>,
    /// The META whose programs are.
    pub(crate) meta: Option<u32>,
    /// The cookie of the node's network namespace; 0: not known.
    pub(crate) namespace: u64,
}

impl Owner {
    /// Whose a program is.
    pub(crate) fn of(&self, programs: &Programs, known: &Known) -> Ownership {
        let Some(meta) = known.meta else {
            return Ownership::Foreign;
        };
        if self.programs.contains(&known.description.id) || self.meta == Some(meta.map_id) {
            return Ownership::Current;
        }
        match programs.node(known) {
            Some(node) if self.namespace != 0 && node != self.namespace => Ownership::OtherNode,
            _ => Ownership::Earlier,
        }
    }
}

fn look(program: &HeldProgram) -> io::Result<Known> {
    let description = program.description();
    let mut maps = Vec::with_capacity(description.map_ids.len());
    let mut found = None;
    for id in &description.map_ids {
        if found.is_none() {
            found = meta(*id)?.map(|meta| (*id, meta));
        }
        maps.push(map(*id)?);
    }
    let meta = found.map(|(map_id, Meta { abi, .. })| Marked { map_id, abi });
    Ok(Known {
        description: ProgramDescription {
            id: description.id,
            name: description.name.clone(),
            program_type: description.program_type,
            type_name: names::program_type(description.program_type),
            tag: description.tag,
            loaded_at: description.loaded_at,
            uid: description.uid,
            maps,
            pinned_at: Vec::new(),
            held_by: Vec::new(),
        },
        meta,
        node: config_of(meta, description.map_ids.iter().copied())?,
    })
}

/// What CONFIG says, if it is among these maps of a program of ours and has been written.
fn config_of(meta: Option<Marked>, maps: impl Iterator<Item = u32>) -> io::Result<Option<u64>> {
    // Of another version nobody knows where CONFIG has what.
    if meta.is_none_or(|meta| meta.abi != Meta::CURRENT.abi) {
        return Ok(None);
    }
    for id in maps {
        if let Some(node) = config_node(id)?.filter(|node| *node != 0) {
            return Ok(Some(node));
        }
    }
    Ok(None)
}

/// What CONFIG says, if the map is one: the only array of ours with one value of this size.
fn config_node(id: u32) -> io::Result<Option<u64>> {
    const SIZE: usize = size_of::<Config>();
    const AT: usize = std::mem::offset_of!(Config, node_netns);
    let value = only_value(id, SIZE..=SIZE)?;
    Ok(value
        .as_deref()
        .and_then(|value| value.get(AT..AT + 8)?.try_into().ok())
        .map(u64::from_ne_bytes))
}

fn map(id: u32) -> io::Result<MapDescription> {
    let opened = match sys::map::open(id, READ_ONLY) {
        // Its owner lets nobody read it.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => sys::map::open(id, sys::WRITE_ONLY),
        opened => opened,
    }?;
    describe_map(id, opened.as_fd())
}

/// Describes an open map.
pub(crate) fn describe_map(id: u32, map: BorrowedFd<'_>) -> io::Result<MapDescription> {
    let sys::map::Description { layout, name, .. } = sys::map::describe(map)?;
    Ok(MapDescription {
        id,
        name,
        map_type: layout.map_type,
        type_name: names::map_type(layout.map_type),
        key_size: layout.key_size,
        value_size: layout.value_size,
        max_entries: layout.max_entries,
        pinned_at: Vec::new(),
        held_by: Vec::new(),
    })
}
