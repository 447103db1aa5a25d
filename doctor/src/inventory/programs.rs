//! Descriptions of programs and maps, each looked at once, and whose programs are.

use std::collections::{BTreeSet, HashMap, HashSet, hash_map::Entry};

use lb_abi::Meta;
use lb_loader::{
    HeldProgram, Load, LoaderError, MapInfo, Ownership, describe_map, namespace_cookie, program_ids,
};

use super::{MapDescription, ProgramDescription, names};

/// Programs by id. An id is not given again before the kernel has gone through all two thousand million.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    known: HashMap<u32, Known>,
    /// The maps that they use, by id. Programs share maps, and opening some is not without effect (see
    /// [`prog_arrays`](super::prog_arrays)).
    maps: HashMap<u32, MapDescription>,
    /// Those that were seen to stay loaded though nothing that can be seen keeps them.
    lasting: HashSet<u32>,
}

/// A program that was looked at.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) description: ProgramDescription,
    /// The load of ours that it is of.
    pub(crate) load: Option<Load>,
}

impl Known {
    /// Whether it does anything when it runs: one of ours does not if its META was taken out of use.
    pub(crate) fn is_armed(&self) -> Result<bool, LoaderError> {
        self.load.map_or(Ok(true), |load| load.is_armed())
    }
}

impl Programs {
    /// Looks at every program that is loaded and was not looked at before, or did not say yet of which node it is, and
    /// forgets those that are gone.
    pub(crate) fn refresh(&mut self) -> Result<(), LoaderError> {
        let mut loaded = HashSet::new();
        for id in program_ids() {
            let id = id?;
            loaded.insert(id);
            self.get(id)?;
        }
        self.known.retain(|id, _| loaded.contains(id));
        let used = self.known.values().flat_map(|known| &known.description.maps);
        let used: HashSet<u32> = used.map(|map| map.id).collect();
        self.maps.retain(|id, _| used.contains(id));
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
        match self.known.entry(id) {
            Entry::Vacant(unknown) => {
                if let Some(program) = HeldProgram::find(id)? {
                    unknown.insert(look(&program, &mut self.maps)?);
                }
            }
            // A load writes CONFIG after its programs are there. The layout of another version's is not known.
            Entry::Occupied(mut known)
                if known
                    .get()
                    .load
                    .is_some_and(|load| load.node.is_none() && load.abi == Meta::CURRENT.abi) =>
            {
                // Held, so that its maps are there.
                if let Some(_program) = HeldProgram::find(id)? {
                    let known = known.get_mut();
                    known.load = load(&known.description.maps)?;
                }
            }
            Entry::Occupied(_) => {}
        }
        Ok(())
    }

    /// One that was looked at.
    pub(crate) fn known(&self, id: u32) -> Option<&Known> {
        self.known.get(&id)
    }

    /// A map that a known program uses.
    pub(crate) fn map(&self, id: u32) -> Option<&MapDescription> {
        self.maps.get(&id)
    }

    /// Those that are known, by id.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Known> {
        let mut all: Vec<&Known> = self.known.values().collect();
        all.sort_unstable_by_key(|known| known.description.id);
        all.into_iter()
    }

    /// The cookie of the network namespace that the load of a program was made for: by its own CONFIG, or that of
    /// another program of the same load. `None`: it is not known.
    pub(crate) fn node(&self, known: &Known) -> Option<u64> {
        let load = known.load?;
        load.node.or_else(|| {
            let mut loads = self.known.values().filter_map(|other| other.load);
            loads.find_map(|other| other.node.filter(|_| other.meta_id == load.meta_id))
        })
    }
}

/// Ids of the programs of ours, of any load, that are known to have been loaded for the calling thread's network
/// namespace: their CONFIG, or that of their load, names it, in a layout that this version knows. Those that are not
/// among them are another node's, or it is not known whose they are.
pub fn programs_of_this_node() -> Result<BTreeSet<u32>, LoaderError> {
    let namespace = namespace_cookie()?;
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
        let Some(load) = known.load else {
            return Ownership::Foreign;
        };
        if self.programs.contains(&known.description.id) || self.meta == Some(load.meta_id) {
            return Ownership::Current;
        }
        match programs.node(known) {
            Some(node) if self.namespace != 0 && node != self.namespace => Ownership::OtherNode,
            _ => Ownership::Earlier,
        }
    }
}

fn look(program: &HeldProgram, known: &mut HashMap<u32, MapDescription>) -> Result<Known, LoaderError> {
    let mut maps = Vec::with_capacity(program.map_ids().len());
    for id in program.map_ids() {
        if let Some(map) = known.get(id) {
            maps.push(map.clone());
        } else if let Some(map) = describe_map(*id)?.map(description) {
            known.insert(*id, map.clone());
            maps.push(map);
        }
    }
    Ok(Known {
        load: load(&maps)?,
        description: ProgramDescription {
            id: program.id(),
            name: program.name().to_owned(),
            program_type: program.program_type(),
            type_name: names::program_type(program.program_type()),
            tag: program.tag(),
            loaded_at: program.loaded_at(),
            uid: program.uid(),
            maps,
            pinned_at: Vec::new(),
            held_by: Vec::new(),
        },
    })
}

/// The load of ours whose maps these are.
fn load(maps: &[MapDescription]) -> Result<Option<Load>, LoaderError> {
    /// `BPF_MAP_TYPE_ARRAY`, as META and CONFIG are.
    const ARRAY: u32 = 2;
    let arrays = maps.iter().filter(|map| map.map_type == ARRAY);
    Load::of(&arrays.map(|map| map.id).collect::<Vec<_>>())
}

/// A map as the kernel describes it, its keepers as yet unknown.
pub(crate) fn description(MapInfo { id, layout, name }: MapInfo) -> MapDescription {
    MapDescription {
        id,
        name,
        map_type: layout.map_type,
        type_name: names::map_type(layout.map_type),
        key_size: layout.key_size,
        value_size: layout.value_size,
        max_entries: layout.max_entries,
        pinned_at: Vec::new(),
        held_by: Vec::new(),
    }
}
