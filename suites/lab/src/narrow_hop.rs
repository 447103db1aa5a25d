//! A hop of a small MTU near the client outside.
//!
//! ```text
//!  node ── bridge, as router ──(1,280 bytes)── 172.30.2.10, fd00:32::a: further addresses of the outside client
//! ```
//!
//! What is larger is answered by the router: ICMP fragmentation needed, or ICMPv6 packet too big. The client's usual
//! addresses, on the link of all nodes, have no such hop.

use std::{net::IpAddr, sync::Arc, time::Duration};

use cluster::{ClusterError, LONGEST, NARROW};

use super::{IpFamilies, LabError, links::Links, underlay::Underlay};

/// What is taken back at its end.
#[must_use = "it is taken back by `heal` alone"]
pub(super) struct NarrowHop {
    underlay: Arc<Underlay>,
    outside: Links,
    families: IpFamilies,
}

impl NarrowHop {
    /// Gives the client, in the namespace of `outside`, its addresses behind the hop.
    pub(super) async fn begin(
        underlay: Arc<Underlay>,
        outside: Links,
        families: IpFamilies,
        lasts: Duration,
    ) -> Result<Self, ClusterError> {
        if lasts > LONGEST {
            let why = format!("expected at most {LONGEST:?}, found {lasts:?}");
            return Err(ClusterError::failed(WHAT, why));
        }
        let there = outside.destinations().await;
        let there = there.map_err(|error| ClusterError::failed(WHAT, &error))?;
        if families
            .behind_hop()
            .iter()
            .any(|own| there.contains(&(*own).into()))
        {
            let why = "there is one: end the fault that made it first";
            return Err(ClusterError::failed(WHAT, why));
        }
        let hop = Self {
            underlay,
            outside,
            families,
        };
        match hop.make().await {
            Ok(()) => Ok(hop),
            Err(error) => {
                drop(hop.heal().await);
                Err(ClusterError::failed(WHAT, &error))
            }
        }
    }

    async fn make(&self) -> Result<(), LabError> {
        let addresses = self.addresses();
        // Not on the device: kernels would choose them for packets to the same network.
        let lo = self.outside.index("lo").await?;
        for address in &addresses {
            self.outside.address(lo, (*address).into()).await?;
        }
        self.underlay
            .narrow(&addresses, &self.families.outside(), NARROW)
            .await
    }

    /// Takes them back.
    pub(super) async fn heal(self) -> Result<(), ClusterError> {
        let failed = |error: LabError| ClusterError::failed("take back a narrow hop", &error);
        let addresses = self.addresses();
        self.underlay.unroute(&addresses).await.map_err(failed)?;
        let lo = self.outside.index("lo").await.map_err(failed)?;
        for address in addresses {
            let removed = self.outside.unaddress(lo, address.into()).await;
            removed.map_err(failed)?;
        }
        Ok(())
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.families.behind_hop()
    }
}

const WHAT: &str = "make a narrow hop";
