//! Layouts of maps that are known, and what a destination becomes by them.
//!
//! A layout is known by name *and* sizes: names are cut off at 15 bytes and given to several versions, sizes tell those
//! apart. What does not fit is shown by id and name, and never guessed at. No key or value is read beyond what its
//! size says.
//!
//! | file | whose | versions |
//! |---|---|---|
//! | `ours` | this project's (`lb-abi`), known by META and ABI version | [`ABI_VERSION`](lb_abi::ABI_VERSION) |
//! | `cilium` | Cilium: services v2; backends v1, v2, v3; IPv4 and IPv6 | 1.6 to 1.19 |
//! | `calico` | Calico's eBPF data plane: `nat_fe` of versions 1, 2 and 3, `nat_be`; IPv4 and IPv6 | up to 3.31 |
//! | `bytes` | reading of fields | |
//!
//! Sources: `bpf/lib/common.h`, `bpf/lib/lb.h` and `pkg/loadbalancer/maps/types.go` of Cilium (backends v2 came with 1.11, PR
//! 17235; v3 with 1.13, PR 21797); `felix/bpf/nat/maps.go`, `maps6.go` and `felix/bpf-gpl/nat_types.h`, `nat_lookup.h` of Calico.

mod bytes;
mod calico;
mod cilium;
mod ours;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use self::{calico::Calico, cilium::Cilium, ours::Ours};
use super::{
    map_bytes::{MapBytes, ReadError},
    report::{Map, Owner, Whose},
};
use crate::{destination::Destination, resolution::Answer};

/// Most backends of one service that are read: what the agent itself takes of one (SERVICES.md).
pub const MOST_BACKENDS: u32 = 16_384;

/// Most frontends of one set of maps that are read: the capacity that Cilium, Calico and we give that map by default.
pub const MOST_FRONTENDS: usize = 65_536;

/// Who asks for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum From {
    /// A socket of this node, when it connects or sends.
    Socket,
    /// A packet of a pod or of the node itself.
    Inside,
    /// A packet from outside.
    Outside,
}

/// What is asked of a set of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Where the client wants to go.
    pub destination: Destination,
    /// Who the client is.
    pub from: From,
}

/// The frontends of a set of maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontends {
    /// Those that were read.
    pub found: BTreeSet<Destination>,
    /// Whether those are all.
    pub complete: bool,
}

/// Maps of one generation of one implementation, with a layout that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tables {
    /// Ours.
    Ours(Ours),
    /// Cilium's.
    Cilium(Cilium),
    /// Calico's.
    Calico(Calico),
}

impl Tables {
    /// Of the maps that one program uses. `None`: none of them is known to hold services.
    ///
    /// # Errors
    /// Our own META can't be read.
    pub fn recognise(bytes: &dyn MapBytes, owner: &Owner, maps: &[&Map]) -> Result<Option<Self>, ReadError> {
        Ok(match owner.whose {
            Whose::Plumbline => Ours::recognise(bytes, maps)?.map(Self::Ours),
            Whose::Cilium => Cilium::recognise(maps).map(Self::Cilium),
            Whose::Calico => Calico::recognise(maps).map(Self::Calico),
            Whose::Systemd | Whose::Unknown => None,
        })
    }

    /// What a single map holds, by name and sizes.
    pub fn layout_of(owner: &Owner, map: &Map) -> Option<String> {
        match owner.whose {
            Whose::Plumbline => ours::layout_of(map),
            Whose::Cilium => cilium::layout_of(map),
            Whose::Calico => calico::layout_of(map),
            Whose::Systemd | Whose::Unknown => None,
        }
    }

    /// What a destination becomes. Maps that can't be read are an answer, too.
    pub fn ask(&self, bytes: &dyn MapBytes, question: &Question) -> Answer {
        let answer = match self {
            Self::Ours(ours) => ours.ask(bytes, question),
            Self::Cilium(cilium) => cilium.ask(bytes, question),
            Self::Calico(calico) => calico.ask(bytes, question),
        };
        answer.unwrap_or_else(|error| Answer::Unknown {
            because: error.to_string(),
        })
    }

    /// All frontends, at most [`MOST_FRONTENDS`].
    ///
    /// # Errors
    /// A map can't be read.
    pub fn frontends(&self, bytes: &dyn MapBytes) -> Result<Frontends, ReadError> {
        match self {
            Self::Ours(ours) => ours.frontends(bytes),
            Self::Cilium(cilium) => cilium.frontends(bytes),
            Self::Calico(calico) => calico.frontends(bytes),
        }
    }

    /// The maps that hold the frontends, by id: what tells two generations apart.
    pub fn generation(&self) -> Vec<u32> {
        match self {
            Self::Ours(ours) => vec![ours.frontends],
            Self::Cilium(cilium) => cilium.generation(),
            Self::Calico(calico) => calico.generation(),
        }
    }
}
