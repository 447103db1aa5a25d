//! What earlier loads of ours have left running for this node, wherever it is.
//!
//! A program that runs is loaded, and ids of programs are not given again: so a look that finds no program of ours but
//! those of this load has found everything, and costs one call for each program on the machine. Only otherwise are
//! cgroups, links and devices looked at.
//!
//! One kernel may run several nodes, each in a network namespace of its own. A load says in its CONFIG for which one it
//! was made:
//!
//! | where | evicted |
//! |---|---|
//! | the node's cgroup; devices of its network namespace | every load of ours but the current one |
//! | cgroups below and above it | those that are not known to be another node's |
//! | anywhere else: other cgroups, removed ones, devices of other namespaces, nowhere that can be seen | those that are known to be this node's |

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use lb_loader::{
    Attached as AttachedProgram, Blind, Datapath, HeldProgram, Hook, LoaderError, Ownership, namespace_cookie,
};

use crate::{
    evict::{Evicted, EvictionError, evict},
    inventory::{
        CgroupState, Found, Inventory, LooseProgram, Manner, Place, ProgramDescription,
        attached::{Attached, attached, attached_to, describe},
        cgroups::{Hierarchy, Relation, Walked},
        holders, pinned,
        programs::{Known, Owner, Programs},
    },
};

/// How long a program that nothing seems to keep may take to go. The kernel frees what was let go of after a grace
/// period: milliseconds, and some hundreds of them on a busy machine. Waited once for each program that stays.
const GOING: Duration = Duration::from_secs(2);
/// How often is looked whether it has gone.
const POLL: Duration = Duration::from_millis(10);

/// Finds what earlier loads of ours have left for a node. One value is used for as long as a datapath is open, as it
/// remembers the programs that it has seen: looking is cheap enough for every second while nothing of ours is loaded but
/// the current load.
#[derive(Debug)]
pub struct Leftovers {
    hierarchy: Hierarchy,
    seen: Mutex<Programs>,
}

impl Leftovers {
    /// Of the node that a datapath is for.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn of(datapath: &Datapath) -> Result<Self, LoaderError> {
        let cgroup = datapath.cgroup();
        let own = cgroup.try_clone();
        Ok(Self {
            hierarchy: Hierarchy::of(own.map_err(LoaderError::kernel(format!("open {cgroup}")))?)?,
            seen: Mutex::default(),
        })
    }

    /// What earlier loads have left running for this node, beside the load of `current`: at any cgroup, shown by a mount
    /// or not, removed or not; at any device; and programs that are attached out of sight, which are
    /// [disarmed](crate::disarm). Attachments are [`Ownership::Earlier`], for [`evict`]. Pins and holders are not looked
    /// for.
    ///
    /// # Errors
    /// The kernel's own. What is there but can't be looked at is in [`Inventory::blind`].
    pub fn find(&self, current: &Datapath) -> Result<Inventory, LoaderError> {
        let programs = current.programs().map(|(_, program)| program.id());
        let packet_programs = current.device_programs().map(|(_, program)| program.id());
        let owner = Owner {
            programs: programs.chain(packet_programs).collect(),
            meta: None,
            namespace: namespace_cookie()?,
        };
        let node = Node {
            hierarchy: &self.hierarchy,
            owner: &owner,
            meta: Some(current.meta_id()?),
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        node.leftovers(&mut seen)
    }

    /// [`Datapath::attach`]; where that is not let in, what an earlier load has attached there or above without a link is
    /// evicted first.
    ///
    /// # Errors
    /// [`LoaderError::Occupied`] if what is in the way is not an earlier load's.
    pub fn attach(&self, datapath: &mut Datapath) -> Result<Vec<AttachedProgram>, EvictionError> {
        let mut freed = None;
        loop {
            match datapath.attach() {
                Err(LoaderError::Occupied { hook, .. })
                    if freed != Some(hook) && self.make_way(datapath, hook)? =>
                {
                    freed = Some(hook);
                }
                attached => return Ok(attached?),
            }
        }
    }

    /// Evicts what earlier loads have attached without a link to a hook; whether there was anything.
    fn make_way(&self, datapath: &Datapath, hook: Hook) -> Result<bool, EvictionError> {
        let mut evicted = false;
        for found in self.find(datapath)?.attachments {
            let in_the_way = matches!(
                (&found.place, &found.manner),
                (Place::Cgroup { attach_type, .. }, Manner::Legacy { .. }) if *attach_type == hook.attach_type()
            );
            evicted |= in_the_way && evict(&found, false)? == Evicted::Detached;
        }
        Ok(evicted)
    }
}

/// What is looked for: the node's cgroup, and which programs are not leftovers.
pub(crate) struct Node<'a> {
    pub(crate) hierarchy: &'a Hierarchy,
    pub(crate) owner: &'a Owner,
    /// The META of the current maps: an earlier load that reads it too can't be disarmed, and has nothing stale.
    pub(crate) meta: Option<u32>,
}

/// What one look sees.
#[derive(Default)]
struct Seen {
    inventory: Inventory,
    /// Programs of earlier loads that are not known to be this node's or another's, by id.
    unsure: BTreeMap<u32, Blind>,
    /// What may hide who keeps those.
    hidden: Vec<Blind>,
}

impl Seen {
    /// All of it; what hides keepers only where one is missed.
    fn told(mut self) -> Inventory {
        if !self.unsure.is_empty() {
            self.inventory.blind.extend(self.unsure.into_values());
            self.inventory.blind.append(&mut self.hidden);
        }
        self.inventory
    }

    /// Without the programs that an earlier look was not unsure of.
    fn after(mut self, earlier: &Self) -> Self {
        self.unsure.retain(|id, _| earlier.unsure.contains_key(id));
        self
    }
}

impl Node<'_> {
    /// Looks. Attachments are [`Ownership::Earlier`]; programs that are loose have maps that no other program reads.
    ///
    /// A program that is just attached and let go of, or freed, is nowhere that can be seen for a moment. So what is
    /// unsure is told if a second look is unsure too; of a program that was there then, it is told at once afterwards.
    pub(crate) fn leftovers(&self, programs: &mut Programs) -> Result<Inventory, LoaderError> {
        let mut seen = self.look(programs)?;
        let new = programs.not_lasting(seen.unsure.keys().copied());
        if !new.is_empty() {
            wait_until_gone(&new)?;
            seen = self.look(programs)?.after(&seen);
            programs.last(seen.unsure.keys().copied());
        }
        Ok(seen.told())
    }

    fn look(&self, programs: &mut Programs) -> Result<Seen, LoaderError> {
        programs.refresh()?;
        let ours = |known: &&Known| known.load.is_some();
        let (mut suspects, mut others) = (HashSet::new(), false);
        for known in programs.all().filter(ours) {
            match self.owner.of(programs, known) {
                Ownership::Current | Ownership::Foreign => {}
                ownership => {
                    suspects.insert(known.description.id);
                    others |= ownership == Ownership::Earlier;
                }
            }
        }
        if suspects.is_empty() {
            return Ok(Seen::default());
        }
        let hooks = Hook::ALL.map(Hook::attach_type);
        // Those of other nodes are none of ours elsewhere than here.
        let Attached { mut raw, mut walked } = if others {
            attached(self.hierarchy, &hooks)?
        } else {
            attached_to(self.hierarchy, &hooks)?
        };
        raw.retain(|raw| suspects.contains(&raw.program_id));
        let all = describe(raw, programs, self.owner)?;
        let blind = std::mem::take(&mut walked.blind);
        let (loose, whose) = self.loose(programs, &all)?;
        let (mut unsure, hidden) = unexplained(whose);
        let attachments = all
            .into_iter()
            .filter_map(|found| self.judge(found, programs, &walked, &mut unsure))
            .collect();
        let inventory = Inventory {
            attachments,
            loose,
            prog_arrays: Vec::new(),
            blind,
        };
        Ok(Seen {
            inventory,
            unsure,
            hidden,
        })
    }

    /// Whether an attachment is this node's leftover.
    fn judge(
        &self,
        mut found: Found,
        programs: &Programs,
        walked: &Walked,
        unsure: &mut BTreeMap<u32, Blind>,
    ) -> Option<Found> {
        let known = programs.known(found.program.id)?;
        let earlier = found.ownership == Ownership::Earlier;
        let stays = match &found.place {
            Place::Device { name: Some(_), .. } => true,
            Place::Cgroup { id, state, .. } => match walked.relation(*id, self.hierarchy.id()) {
                Relation::Own => true,
                Relation::Below | Relation::Above => earlier,
                Relation::Beside => {
                    let sure = self.is_here(programs, known);
                    if earlier && !sure && *state == CgroupState::Dying {
                        unsure.insert(
                            found.program.id,
                            cannot_say(&found.place.to_string(), &found.program),
                        );
                    }
                    sure
                }
            },
            Place::Device { name: None, .. } | Place::Namespace { .. } => self.is_here(programs, known),
        };
        found.ownership = Ownership::Earlier;
        stays.then_some(found)
    }

    /// Programs of this node that are attached nowhere that can be seen, and would do something if they ran; without
    /// those whose maps an attached one still reads. And those of which it is unknown whether they are this node's.
    fn loose(
        &self,
        programs: &Programs,
        attached: &[Found],
    ) -> Result<(Vec<LooseProgram>, Vec<LooseProgram>), LoaderError> {
        let attached: HashSet<u32> = attached.iter().map(|found| found.program.id).collect();
        let in_use: HashSet<u32> = programs
            .all()
            .filter(|known| attached.contains(&known.description.id))
            .filter_map(|known| Some(known.load?.meta_id))
            .chain(self.meta)
            .collect();
        let (mut loose, mut whose) = (Vec::new(), Vec::new());
        for known in programs.all() {
            let Some(load) = known.load else { continue };
            if in_use.contains(&load.meta_id)
                || self.owner.of(programs, known) != Ownership::Earlier
                || !known.is_armed()?
            {
                continue;
            }
            let here = self.is_here(programs, known);
            let sort = if here { &mut loose } else { &mut whose };
            sort.push(LooseProgram {
                program: known.description.clone(),
                ownership: Ownership::Earlier,
                called_from: Vec::new(),
                armed: true,
            });
        }
        Ok((loose, whose))
    }

    /// Whether a program is known to have been loaded for this node.
    fn is_here(&self, programs: &Programs, known: &Known) -> bool {
        self.owner.namespace != 0 && programs.node(known) == Some(self.owner.namespace)
    }
}

/// Those that nothing keeps that can be seen, by id: so they run out of sight. Others are held by a process that
/// tries programs out, or for later. And what may hide who keeps them.
fn unexplained(whose: Vec<LooseProgram>) -> (BTreeMap<u32, Blind>, Vec<Blind>) {
    let (mut unsure, mut hidden) = (BTreeMap::new(), Vec::new());
    if whose.is_empty() {
        return (unsure, hidden);
    }
    let mut keepers = holders::look(&mut hidden);
    keepers.extend(pinned::look(&mut hidden));
    for mut loose in whose {
        keepers.fill(&mut loose.program);
        if loose.is_unexplained() {
            let told = cannot_say("no place that can be seen", &loose.program);
            unsure.insert(loose.program.id, told);
        }
    }
    (unsure, hidden)
}

/// Waits until none of the programs is loaded, for at most [`GOING`].
fn wait_until_gone(programs: &[u32]) -> Result<(), LoaderError> {
    let begun = Instant::now();
    while begun.elapsed() < GOING {
        let mut left = false;
        for id in programs {
            left |= HeldProgram::find(*id)?.is_some();
        }
        if !left {
            break;
        }
        thread::sleep(POLL);
    }
    Ok(())
}

fn cannot_say(place: &str, program: &ProgramDescription) -> Blind {
    Blind {
        what: format!(
            "whether program {} ({}) of another load, at {place}, is this node's",
            program.id, program.name
        ),
        why: "its maps do not say for which network namespace they are, or in a layout that this version does not know"
            .to_owned(),
        remedy: "if this kernel runs no other node, end it by `plumbline doctor --fix`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blind(what: &str) -> Blind {
        Blind {
            what: what.to_owned(),
            why: String::new(),
            remedy: String::new(),
        }
    }

    fn unsure(programs: &[u32]) -> Seen {
        let unsure = programs.iter().map(|id| (*id, blind(&format!("program {id}"))));
        Seen {
            unsure: unsure.collect(),
            hidden: vec![blind("processes")],
            ..Seen::default()
        }
    }

    #[test]
    fn what_two_looks_are_unsure_of_is_told() {
        let told = unsure(&[2, 3]).after(&unsure(&[1, 2])).told();
        assert_eq!(told.blind, [blind("program 2"), blind("processes")]);
    }

    #[test]
    fn where_no_keeper_is_missed_what_hides_them_is_not_told() {
        let told = unsure(&[2]).after(&unsure(&[1])).told();
        assert_eq!(told, Inventory::default());
    }
}
