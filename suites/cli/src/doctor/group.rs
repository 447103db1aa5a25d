//! Groups of equal attachments: one Cilium program at 37 devices is one row of the page.

use std::collections::BTreeSet;

use doctor::report::{Attachment, Place, Report, Standing};

use super::show::{stale, whose};

/// Attachments of programs of one name and owner, at one hook and in one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group<'a> {
    pub(super) hook: String,
    /// Position at the hook, from 1.
    pub(super) turn: u32,
    pub(super) name: &'a str,
    pub(super) programs: BTreeSet<u32>,
    pub(super) whose: String,
    /// Places of the attachments without the hook, in the order of the report.
    pub(super) places: Vec<String>,
    devices: bool,
    /// What is wrong with them; empty if nothing is.
    pub(super) stale: &'static str,
    /// Position of the place on a connection's path.
    pub(super) met: usize,
}

/// Attachments that can rewrite an address, in the order in which a connection reaches them; and the others.
pub(super) fn groups(report: &Report) -> (Vec<Group<'_>>, Vec<&Attachment>) {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut others = Vec::new();
    for attachment in &report.attachments {
        if attachment.standing == Standing::OtherNode {
            continue;
        }
        // A stale attachment is always shown, never only counted.
        let stale = stale(attachment);
        let met = match attachment.place.rewrites() {
            None if stale.is_empty() => {
                others.push(attachment);
                continue;
            }
            met => met.unwrap_or(usize::MAX),
        };
        let program = report.programs.get(&attachment.program);
        let new = Group {
            hook: attachment.place.hook(),
            turn: attachment.order + 1,
            name: program.map_or("", |program| program.name.as_str()),
            programs: BTreeSet::from([attachment.program]),
            whose: program.map_or_else(String::new, |program| whose(program, attachment.standing)),
            places: vec![short(&attachment.place)],
            devices: matches!(attachment.place, Place::Device { .. }),
            stale,
            met,
        };
        match groups.iter_mut().find(|group| group.is_like(&new)) {
            Some(group) => {
                group.programs.extend(new.programs);
                group.places.extend(new.places);
            }
            None => groups.push(new),
        }
    }
    groups.sort_by(|one, other| (one.met, &one.hook, one.turn).cmp(&(other.met, &other.hook, other.turn)));
    (groups, others)
}

/// A place without its hook, in its shortest form.
fn short(place: &Place) -> String {
    match place {
        Place::Cgroup { path: Some(path), .. } => path.display().to_string(),
        Place::Device { name: Some(name), .. } => name.clone(),
        place => place.whole(),
    }
}

impl Group<'_> {
    fn is_like(&self, other: &Self) -> bool {
        (
            &self.hook,
            self.turn,
            self.name,
            &self.whose,
            self.devices,
            self.stale,
        ) == (
            &other.hook,
            other.turn,
            other.name,
            &other.whose,
            other.devices,
            other.stale,
        )
    }

    /// `205 cil_sock4_conne`, or `37 × cil_from_contai` for as many programs.
    pub(super) fn programs(&self) -> String {
        match (self.programs.len(), self.programs.first()) {
            (1, Some(id)) => format!("{id} {}", self.name),
            (count, _) => format!("{count} × {}", self.name),
        }
    }

    /// Whether the attachments are at network devices.
    pub(super) const fn is_at_devices(&self) -> bool {
        self.devices
    }

    /// The places: up to two by name, more by number.
    pub(super) fn at(&self) -> String {
        const NAMED: usize = 2;
        if self.places.len() <= NAMED {
            return self.places.join(", ");
        }
        let kind = if self.devices { "devices" } else { "cgroups" };
        format!("{} {kind}", self.places.len())
    }
}
