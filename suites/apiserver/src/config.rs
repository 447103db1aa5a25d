//! Settings of a [`Store`](crate::Store).

use std::{net::IpAddr, time::Duration};

use ipnet::IpNet;

/// Settings of a control plane, with all of its bounds.
#[derive(Clone, Debug)]
pub struct Config {
    /// Ranges of ClusterIPs, one per family, the primary family first.
    ///
    /// The first address of each range belongs to `default/kubernetes`.
    pub service_cidrs: Vec<IpNet>,
    /// Range of node ports (`--service-node-port-range`).
    pub node_ports: std::ops::RangeInclusive<u16>,
    /// Addresses that the EndpointSlice `default/kubernetes` shows from the start and for good: for servers that
    /// [`serve()`](crate::serve()) runs. Empty where [`Replica`](crate::Replica)s advertise themselves.
    pub advertise: Vec<IpAddr>,
    /// Port of the API servers at these addresses.
    pub advertise_port: u16,
    /// How often a replica renews its lease and reconciles `default/kubernetes`. Upstream: 10 s.
    pub reconcile_interval: Duration,
    /// How long a replica's lease lasts without renewal. Upstream: 15 s.
    pub lease: Duration,
    /// Events kept for watches and lists at an earlier resourceVersion; an older one is answered with 410.
    pub history_events: usize,
    /// The same bound in bytes of JSON, whichever is reached first.
    pub history_bytes: usize,
    /// Event objects (`kubectl get events`) kept; the oldest is removed first.
    pub event_objects: usize,
    /// Interval of bookmarks in an idle watch that allows them.
    pub bookmark_interval: Duration,
    /// Largest request body; a larger one is answered with 413. Upstream: 3 MiB.
    pub body_bytes: usize,
    /// Writes under way at once; more are answered with 429. Upstream: `--max-mutating-requests-inflight`.
    pub writes: usize,
    /// Programs that clients run in pods at once (`exec`); more are answered with 429.
    pub sessions: usize,
    /// Connections served at once by one [`serve()`](crate::serve()); more wait in the listener's backlog.
    pub connections: usize,
}

impl Config {
    /// Upstream's defaults for a cluster with these service ranges and API server addresses.
    #[must_use]
    pub fn new(service_cidrs: Vec<IpNet>, advertise: Vec<IpAddr>, advertise_port: u16) -> Self {
        Self {
            service_cidrs,
            node_ports: 30000..=32767,
            advertise,
            advertise_port,
            reconcile_interval: Duration::from_secs(10),
            lease: Duration::from_secs(15),
            history_events: 8192,
            history_bytes: 64 << 20,
            event_objects: 1000,
            bookmark_interval: Duration::from_secs(60),
            body_bytes: 3 << 20,
            writes: 200,
            sessions: 64,
            connections: 1024,
        }
    }

    /// Checks the assumptions of [`Store::new`](crate::Store::new).
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        match self.service_cidrs.as_slice() {
            [_] => {}
            [a, b] if a.addr().is_ipv4() != b.addr().is_ipv4() => {}
            other => return Err(ConfigError::ServiceCidrs { found: other.len() }),
        }
        for cidr in &self.service_cidrs {
            if host_bits(cidr) < 2 {
                return Err(ConfigError::SmallCidr { cidr: *cidr });
            }
        }
        Ok(())
    }
}

/// Bits of a range that number its addresses.
pub(crate) fn host_bits(cidr: &IpNet) -> u8 {
    cidr.max_prefix_len() - cidr.prefix_len()
}

/// A configuration that can't work.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// None, more than two, or two of one family.
    #[error("expected one service range or one of each IP family, found {found}; correct service_cidrs")]
    ServiceCidrs {
        /// How many were given.
        found: usize,
    },
    /// Too few addresses.
    #[error("the service range {cidr} holds fewer than two addresses; choose a larger one")]
    SmallCidr {
        /// The range.
        cidr: IpNet,
    },
    /// An object that every cluster has was refused.
    #[error("failed to create the first {what}: {status}; correct the advertised addresses")]
    Bootstrap {
        /// Its kind.
        what: &'static str,
        /// The refusal.
        status: crate::Status,
    },
}
