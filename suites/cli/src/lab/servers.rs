//! `--apiservers` and `--advertise-shared`: the control plane of a new lab.

use lab::embedded::{Advertise, ControlPlane};

/// How many API servers, and what they say of themselves.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControlPlaneArgs {
    /// How many API servers, 1 to 5, over one store; nodes ask them by turns
    #[arg(long = "apiservers", value_name = "NUMBER", default_value_t = 1)]
    servers: u8,
    /// All API servers advertise the address of a load balancer in front of them: default/kubernetes has one endpoint,
    /// which whoever stops takes away from all; nodes ask the load balancer
    #[arg(long)]
    advertise_shared: bool,
}

impl ControlPlaneArgs {
    /// What they say.
    pub(crate) fn control_plane(&self) -> ControlPlane {
        ControlPlane {
            servers: self.servers,
            advertise: if self.advertise_shared {
                Advertise::Shared
            } else {
                Advertise::Own
            },
        }
    }
}
