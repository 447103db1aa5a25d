//! What a case needs of the target itself. Without it the case is not supported, which is decided before the run.

use lab::cluster::{Description, Variant};
use serde::Serialize;

/// Something that a target has or documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OfTarget {
    /// It documents that its agents can reach the API by an address of a Service that it serves itself.
    ServiceWay,
    /// It documents that its agents can be told further addresses of the API.
    FurtherAddresses,
    /// It has this other configuration.
    Variant(Variant),
}

impl OfTarget {
    /// Why a target is without it, in words; `None`: it has it.
    #[must_use]
    pub fn lacks(self, cluster: &Description) -> Option<String> {
        let target = &cluster.target;
        match self {
            Self::ServiceWay => (!cluster.ways.service).then(|| {
                format!("{target} does not document that it can reach the API by an address of a Service that it serves itself")
            }),
            Self::FurtherAddresses => {
                (!cluster.ways.further).then(|| format!("{target} documents no second way to the API"))
            }
            Self::Variant(variant) => (!cluster.variants.contains(&variant))
                .then(|| format!("{target} names no variant {variant}: it has no switch for {}", is_switched(variant))),
        }
    }
}

/// What a variant is without.
fn is_switched(variant: Variant) -> &'static str {
    match variant {
        Variant::SocketLbOff => "translation at sockets",
    }
}
