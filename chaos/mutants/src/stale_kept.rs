//! Incident 2: the agent overlooks what an earlier load has left at its cgroup.
//!
//! It attaches its own programs beside the old ones and reports success. The old program runs first and rewrites the
//! destination from its own maps, and the new one gets an address that is no Service.

use std::path::Path;

use doctor::{CgroupState, Found, Inventory, Manner, Place};
use lb_loader::{ALLOW_MULTI, Layer};
use reference_agent::datapath::Datapath;

use crate::datapath_decorator::{Flaw, Flawed, Misjudges};

/// Path of every node's own cgroup in its mount namespace, where the agent attaches.
pub const CGROUP: &str = "/sys/fs/cgroup";

/// Hooks of [`Overlooked::Reverse`], without the family.
const REVERSE: [&str; 3] = ["recvmsg", "getpeername", "post_bind"];

/// The programs that the agent overlooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlooked {
    /// All, in any place.
    All,
    /// Programs at its own cgroup that were attached without a link.
    Legacy,
    /// Programs at its own cgroup that are attached by a link.
    Links,
    /// Programs at cgroups below its own.
    Below,
    /// Programs at cgroups that no mount shows.
    Above,
    /// Programs at cgroups that are not below its own, and that a mount shows.
    AboveShown,
    /// Programs that were attached exclusively, at its cgroup or below: the agent treats the kernel's refusal as
    /// success.
    Exclusive,
    /// Programs at the sendmsg hooks.
    Sendmsg,
    /// Programs at the hooks that show addresses to clients, or that reserve ports: recvmsg, getpeername, `post_bind`.
    Reverse,
    /// Programs at network devices, by TCX or as filters.
    Tc,
    /// Programs of XDP.
    Xdp,
}

impl Overlooked {
    pub(crate) fn hides(self, found: &Found) -> bool {
        let (path, state, attach_name) = match &found.place {
            Place::Cgroup {
                path,
                state,
                attach_name,
                ..
            } => (path, state, attach_name),
            Place::Device { layer, .. } => {
                return match self {
                    Self::All => true,
                    Self::Tc => matches!(layer, Layer::Tcx | Layer::Clsact),
                    Self::Xdp => *layer == Layer::Xdp,
                    _ => false,
                };
            }
            Place::Namespace { .. } => return self == Self::All,
        };
        let own = path.as_deref() == Some(Path::new(CGROUP));
        match self {
            Self::All => true,
            Self::Tc | Self::Xdp => false,
            Self::Legacy => own && matches!(found.manner, Manner::Legacy { .. }),
            Self::Links => own && matches!(found.manner, Manner::Link { .. }),
            Self::Below => !own && is_below(path.as_deref()),
            Self::Above => *state == CgroupState::Hidden,
            Self::AboveShown => *state == CgroupState::Visible && !is_below(path.as_deref()),
            Self::Exclusive => {
                matches!(found.manner, Manner::Legacy { flags } if flags & ALLOW_MULTI == 0)
            }
            Self::Sendmsg => attach_name.contains("sendmsg"),
            Self::Reverse => REVERSE.iter().any(|hook| attach_name.starts_with(hook)),
        }
    }
}

/// Whether the path is the agent's cgroup or below it.
fn is_below(path: Option<&Path>) -> bool {
    path.is_some_and(|path| path.starts_with(CGROUP))
}

/// The production agent's datapath, which overlooks some stale programs.
pub fn overlooking<D: Datapath>(inner: D, overlooked: Overlooked) -> Flawed<D, impl Flaw<D>> {
    let misjudges = Misjudges(move |mut seen: Inventory| {
        if overlooked == Overlooked::All {
            return Inventory::default();
        }
        seen.attachments.retain(|found| !overlooked.hides(found));
        seen
    });
    Flawed::new(inner, misjudges)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use doctor::ProgramDescription;
    use lb_loader::{ALLOW_MULTI, ALLOW_OVERRIDE, Direction, Ownership};

    use super::*;

    fn at(path: Option<&str>, attach_name: &'static str, flags: u32) -> Found {
        found(
            Place::Cgroup {
                id: 2,
                path: path.map(Into::into),
                state: if path.is_some() {
                    CgroupState::Visible
                } else {
                    CgroupState::Hidden
                },
                attach_type: 10,
                attach_name,
            },
            flags,
        )
    }

    fn at_device(layer: Layer) -> Found {
        let place = Place::Device {
            index: 2,
            name: Some("eth0".to_owned()),
            layer,
            direction: Direction::Ingress,
        };
        found(place, 0)
    }

    fn found(place: Place, flags: u32) -> Found {
        Found {
            place,
            order: 0,
            program: ProgramDescription {
                id: 7,
                name: String::new(),
                program_type: 18,
                type_name: "cgroup_sock_addr",
                tag: [0; 8],
                loaded_at: Duration::ZERO,
                uid: 0,
                maps: Vec::new(),
                pinned_at: Vec::new(),
                held_by: Vec::new(),
            },
            manner: Manner::Legacy { flags },
            ownership: Ownership::Earlier,
        }
    }

    #[test]
    fn each_overlooks_its_own_places_and_no_other() {
        use Overlooked::{Above, AboveShown, All, Below, Exclusive, Legacy, Reverse, Sendmsg, Tc, Xdp};
        let multi = ALLOW_MULTI;
        let places = [
            (at(Some(CGROUP), "connect4", multi), vec![All, Legacy]),
            (at(Some(CGROUP), "connect4", 0), vec![All, Legacy, Exclusive]),
            (at(Some(CGROUP), "sendmsg6", multi), vec![All, Legacy, Sendmsg]),
            (at(Some(CGROUP), "recvmsg4", multi), vec![All, Legacy, Reverse]),
            (
                at(Some(CGROUP), "getpeername6", multi),
                vec![All, Legacy, Reverse],
            ),
            (at(Some(CGROUP), "post_bind4", multi), vec![All, Legacy, Reverse]),
            (at(Some(CGROUP), "bind4", multi), vec![All, Legacy]),
            (at(Some(CGROUP), "sock_release", multi), vec![All, Legacy]),
            (
                at(Some("/sys/fs/cgroup/system"), "connect4", multi),
                vec![All, Below],
            ),
            (at(Some("/run/all"), "connect4", multi), vec![All, AboveShown]),
            (at(None, "connect4", multi), vec![All, Above]),
            (at(None, "connect4", ALLOW_OVERRIDE), vec![All, Above, Exclusive]),
            (at_device(Layer::Tcx), vec![All, Tc]),
            (at_device(Layer::Clsact), vec![All, Tc]),
            (at_device(Layer::Xdp), vec![All, Xdp]),
        ];
        let every = [
            All,
            Legacy,
            Overlooked::Links,
            Below,
            Above,
            AboveShown,
            Exclusive,
            Sendmsg,
            Reverse,
            Tc,
            Xdp,
        ];
        for (found, expected) in places {
            let hiding: Vec<_> = every.into_iter().filter(|one| one.hides(&found)).collect();
            for one in every {
                assert_eq!(
                    hiding.contains(&one),
                    expected.contains(&one),
                    "{one:?} at {}",
                    found.place
                );
            }
        }
    }
}
