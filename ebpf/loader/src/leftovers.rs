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

use std::collections::HashSet;

use crate::{
    Blind, CgroupState, Found, Hook, Inventory, LoaderError, LooseProgram, Ownership, Place,
    ProgramDescription, device,
    inventory::{
        attached::{Attached, attached, attached_to, describe},
        cgroups::{Hierarchy, Relation, Walked},
        holders,
        loose::is_armed,
        pinned,
        programs::{Known, Owner, Programs},
    },
};

/// What is looked for: the node's cgroup, and which programs are not leftovers.
pub(crate) struct Node<'a> {
    pub(crate) hierarchy: &'a Hierarchy,
    pub(crate) owner: &'a Owner,
    /// The META of the current maps: an earlier load that reads it too can't be disarmed, and has nothing stale.
    pub(crate) meta: Option<u32>,
}

impl Node<'_> {
    /// Looks. Attachments are [`Ownership::Earlier`]; programs that are loose have maps that nobody else reads.
    pub(crate) fn leftovers(&self, programs: &mut Programs) -> Result<Inventory, LoaderError> {
        programs.refresh()?;
        let ours = |known: &&Known| known.meta.is_some();
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
            return Ok(Inventory::default());
        }
        let hooks = Hook::ALL.map(Hook::attach_type);
        let mut netlink = device::netlink()?;
        // Those of other nodes are none of ours elsewhere than here.
        let Attached { mut raw, mut walked } = if others {
            attached(self.hierarchy, &hooks, &mut netlink)?
        } else {
            attached_to(self.hierarchy, &hooks, &mut netlink)?
        };
        raw.retain(|raw| suspects.contains(&raw.program_id));
        let all = describe(raw, programs, self.owner)?;
        let mut blind = std::mem::take(&mut walked.blind);
        let loose = self.loose(programs, &all, &mut blind)?;
        let attachments = all
            .into_iter()
            .filter_map(|found| self.judge(found, programs, &walked, &mut blind))
            .collect();
        Ok(Inventory {
            attachments,
            loose,
            blind,
        })
    }

    /// Whether an attachment is this node's leftover.
    fn judge(
        &self,
        mut found: Found,
        programs: &Programs,
        walked: &Walked,
        blind: &mut Vec<Blind>,
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
                        blind.push(unsure(&found.place.to_string(), &found.program));
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
    /// those whose maps an attached one still reads.
    fn loose(
        &self,
        programs: &Programs,
        attached: &[Found],
        blind: &mut Vec<Blind>,
    ) -> Result<Vec<LooseProgram>, LoaderError> {
        let attached: HashSet<u32> = attached.iter().map(|found| found.program.id).collect();
        let in_use: HashSet<u32> = programs
            .all()
            .filter(|known| attached.contains(&known.description.id))
            .filter_map(|known| Some(known.meta?.map_id))
            .chain(self.meta)
            .collect();
        let (mut loose, mut unsure) = (Vec::new(), Vec::new());
        for known in programs.all() {
            let Some(meta) = known.meta else { continue };
            if in_use.contains(&meta.map_id)
                || self.owner.of(programs, known) != Ownership::Earlier
                || !is_armed(known)?
            {
                continue;
            }
            let here = self.is_here(programs, known);
            let sort = if here { &mut loose } else { &mut unsure };
            sort.push(LooseProgram {
                program: known.description.clone(),
                ownership: Ownership::Earlier,
                called_from: Vec::new(),
                armed: true,
            });
        }
        blind.extend(unexplained(unsure));
        Ok(loose)
    }

    /// Whether a program is known to have been loaded for this node.
    fn is_here(&self, programs: &Programs, known: &Known) -> bool {
        self.owner.namespace != 0 && programs.node(known) == Some(self.owner.namespace)
    }
}

/// Those that nothing keeps that can be seen: so they run where nobody can look. Others are held by whoever tries
/// programs out, or for later.
fn unexplained(unsure: Vec<LooseProgram>) -> Vec<Blind> {
    if unsure.is_empty() {
        return Vec::new();
    }
    let mut blind = Vec::new();
    let mut keepers = holders::look(&mut blind);
    keepers.extend(pinned::look(&mut blind));
    let mut said = Vec::new();
    for mut loose in unsure {
        keepers.fill(&mut loose.program);
        if loose.is_unexplained() {
            said.push(self::unsure("no place that can be seen", &loose.program));
        }
    }
    // What hides holders matters only where one is missed.
    if !said.is_empty() {
        said.append(&mut blind);
    }
    said
}

fn unsure(place: &str, program: &ProgramDescription) -> Blind {
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
