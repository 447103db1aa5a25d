//! What a case needs of the target itself. Without it the case is not supported, which is decided before the run.
//!
//! What a target documents, its file says. What faults are made of is what it has on a node: that is looked at before the run
//! ([`faults::Found`]), by what the faults themselves use.

use cluster::{Description, Family, Variant};
use faults::Found;
use serde::Serialize;

/// Names of a hook, of IPv4's and of IPv6's.
pub type Hooks = [&'static str; 2];

/// Something that a target documents, or has on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OfTarget {
    /// It documents that its agents can reach the API by an address of a Service that it serves itself.
    ServiceWay,
    /// It documents that its agents can be given further addresses of the API.
    FurtherAddresses,
    /// It has this other configuration.
    Variant(Variant),
    /// It documents how many endpoints a node can hold.
    MostEndpoints,
    /// Programs at these hooks of the agent's cgroup, of each family that the cluster has.
    ProgramsAt(Hooks),
    /// A program at one of these at least.
    ProgramsAtOneOf(&'static [Hooks]),
    /// Programs at these that use a map, of one family at least.
    MapsAt(Hooks),
    /// A program at a device.
    PacketPrograms,
    /// A program at these hooks, or at a device.
    ProgramsAtOrPacketPrograms(Hooks),
    /// A pinned link that attaches a program to the sockets of the agent's cgroup.
    PinnedLinks,
    /// Pins, and among them maps that could be laid out otherwise.
    PinnedMaps,
    /// Anything that can be counted: programs, links, maps, pins, rules.
    Countable,
    /// The same, beyond what the node had before the agent.
    CountableBeyondBaseline,
}

impl OfTarget {
    /// Whether it is seen on a node alone.
    #[must_use]
    pub fn is_on_nodes(self) -> bool {
        !matches!(
            self,
            Self::ServiceWay | Self::FurtherAddresses | Self::Variant(_) | Self::MostEndpoints
        )
    }

    /// Why a target is without it, in words; `None`: it has it, or was not looked at yet.
    #[must_use]
    pub fn lacks(self, cluster: &Description, found: Option<&Found>) -> Option<String> {
        let target = &cluster.target;
        match self {
            Self::ServiceWay => (!cluster.ways.service).then(|| {
                format!(
                    "{target} does not document that it can reach the API by an address of a Service that it serves itself"
                )
            }),
            Self::FurtherAddresses => {
                (!cluster.ways.further).then(|| format!("{target} documents no second way to the API"))
            }
            Self::Variant(variant) => (!cluster.variants.contains(&variant)).then(|| {
                let why = is_lacking(variant);
                format!("{target} names no variant {variant}: {why}")
            }),
            Self::MostEndpoints => cluster
                .most_endpoints
                .is_none()
                .then(|| format!("{target} documents no limit of its endpoints (most-endpoints)")),
            on_node => on_node.is_missing(&cluster.families(), found?),
        }
    }

    fn is_missing(self, families: &[Family], found: &Found) -> Option<String> {
        const NOTHING: &str = "there is nothing to be left over";
        let is_at = |hook: &&str| found.is_at(hook);
        let of = |hooks: Hooks| families.iter().map(move |family| of_family(hooks, *family));
        let (is_there, why) = match self {
            Self::ServiceWay | Self::FurtherAddresses | Self::Variant(_) | Self::MostEndpoints => return None,
            Self::ProgramsAt(hooks) => {
                let missing = of(hooks).find(|hook| !found.is_at(hook));
                let at = missing.unwrap_or_default();
                let why = format!("no program is attached at {at} of the agent's cgroup: {NOTHING}");
                (missing.is_none(), why)
            }
            Self::ProgramsAtOneOf(all) => {
                let hooks: Vec<&str> = all.iter().flat_map(|hooks| of(*hooks)).collect();
                let at = hooks.join(", ");
                let why = format!("no program is attached at {at} of the agent's cgroup: {NOTHING}");
                (hooks.iter().any(is_at), why)
            }
            Self::MapsAt(hooks) => {
                let hooks: Vec<&str> = of(hooks).collect();
                let mut programs = found.sockets.iter();
                let at = hooks.join(" or ");
                let why =
                    format!("no program at {at} of the agent's cgroup uses a map: there is nothing to be mistaken for");
                let uses = |program: &faults::HeldProgram| {
                    hooks.contains(&program.hook.as_str()) && !program.maps.is_empty()
                };
                (programs.any(uses), why)
            }
            Self::PacketPrograms => (
                !found.packets.is_empty(),
                format!("no program is attached to a device of the node: {NOTHING}"),
            ),
            Self::ProgramsAtOrPacketPrograms(hooks) => (
                of(hooks).any(|hook| found.is_at(hook)) || !found.packets.is_empty(),
                format!("the implementation has no program at its cgroup or at devices: {NOTHING}"),
            ),
            Self::PinnedLinks => (
                !found.pinned_links.is_empty(),
                "no pinned link attaches a program to the sockets of the agent's cgroup: none can lead elsewhere"
                    .to_owned(),
            ),
            Self::PinnedMaps => (
                !found.pinned_maps.is_empty(),
                "the implementation pins no map on the node that a new agent could find, laid out as it was or otherwise"
                    .to_owned(),
            ),
            Self::Countable => (!found.remains.is_empty(), UNCOUNTED.to_owned()),
            Self::CountableBeyondBaseline => (!found.added.is_empty(), UNCOUNTED.to_owned()),
        };
        (!is_there).then_some(why)
    }
}

const UNCOUNTED: &str = "the implementation has nothing on the node that could be counted";

fn of_family(hooks: Hooks, family: Family) -> &'static str {
    match family {
        Family::IPv4 => hooks[0],
        Family::IPv6 => hooks[1],
    }
}

/// What a target that names no such variant is taken to be without.
fn is_lacking(variant: Variant) -> &'static str {
    match variant {
        Variant::SocketLbOff => "it has no switch for translation at sockets",
        Variant::OtherMode => "it has no switch for its datapath mode",
        Variant::OtherRelease => "there is no program of another release",
    }
}

#[cfg(test)]
mod tests {
    use faults::HeldProgram;

    use super::*;

    const CONNECT: Hooks = ["connect4", "connect6"];
    const RECVMSG: Hooks = ["recvmsg4", "recvmsg6"];
    const BOTH: [Family; 2] = [Family::IPv4, Family::IPv6];

    fn program(hook: &str, maps: &[u32]) -> HeldProgram {
        HeldProgram {
            hook: hook.to_owned(),
            id: 7,
            name: String::new(),
            maps: maps.to_vec(),
        }
    }

    fn with(sockets: Vec<HeldProgram>) -> Found {
        Found {
            sockets,
            ..Found::default()
        }
    }

    #[test]
    fn a_target_with_nothing_on_a_node_lacks_all_that_is_looked_for_there() {
        let rows = [
            (OfTarget::ProgramsAt(CONNECT), "at connect4 of the agent's cgroup"),
            (
                OfTarget::ProgramsAtOneOf(&[CONNECT, RECVMSG]),
                "at connect4, connect6, recvmsg4, recvmsg6 of",
            ),
            (
                OfTarget::MapsAt(CONNECT),
                "at connect4 or connect6 of the agent's cgroup uses a map",
            ),
            (OfTarget::PacketPrograms, "to a device"),
            (
                OfTarget::ProgramsAtOrPacketPrograms(CONNECT),
                "at its cgroup or at devices",
            ),
            (OfTarget::PinnedLinks, "no pinned link"),
            (OfTarget::PinnedMaps, "pins no map"),
            (OfTarget::Countable, "counted"),
            (OfTarget::CountableBeyondBaseline, "counted"),
        ];
        for (need, expected) in rows {
            assert!(need.is_on_nodes(), "{need:?}");
            let why = need.is_missing(&BOTH, &Found::default()).expect("it is missing");
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn programs_are_needed_at_the_hook_of_each_family_that_the_cluster_has() {
        let found = with(vec![program("connect4", &[]), program("recvmsg6", &[3])]);
        let missing = |need: OfTarget, families: &[Family]| need.is_missing(families, &found);
        assert_eq!(missing(OfTarget::ProgramsAt(CONNECT), &[Family::IPv4]), None);
        let why = missing(OfTarget::ProgramsAt(CONNECT), &BOTH).expect("IPv6 lacks it");
        assert!(why.contains("at connect6"), "{why}");
        assert_eq!(
            missing(OfTarget::ProgramsAtOneOf(&[CONNECT, RECVMSG]), &BOTH),
            None
        );
        assert!(missing(OfTarget::ProgramsAtOneOf(&[RECVMSG]), &[Family::IPv4]).is_some());
        assert_eq!(
            missing(OfTarget::ProgramsAtOrPacketPrograms(CONNECT), &BOTH),
            None
        );
        assert!(
            missing(OfTarget::MapsAt(CONNECT), &BOTH).is_some(),
            "it uses none"
        );
        assert_eq!(missing(OfTarget::MapsAt(RECVMSG), &BOTH), None);
    }
}
