//! Which flows and sockets go: pure.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::{IpAddr, SocketAddr},
};

use lb_abi::{
    Backend, BackendId, Flow, FrontendKey, Remembered, ReverseKey, ServiceId, Tuple, UDP, flow_flags,
};

use crate::{
    reconcile::Departed,
    transport::{Protocol, TransportAddress},
};

/// Backends that have departed, each once for each service port.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    departed: HashMap<(ServiceId, BackendId), Gone>,
    /// Whether there are some of which no more is known than that nobody has them.
    unlisted: bool,
}

#[derive(Clone, Debug)]
struct Gone {
    backend: SocketAddr,
    frontends: BTreeSet<TransportAddress>,
}

impl Batch {
    /// How many backends it has.
    pub fn len(&self) -> usize {
        self.departed.len() + usize::from(self.unlisted)
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.departed.is_empty() && !self.unlisted
    }

    /// Takes one more, up to `most` in all; of more than that only that there were.
    pub fn add(&mut self, departed: Departed, most: usize) {
        let Departed {
            service,
            frontends,
            backend,
            id,
        } = departed;
        // Of an earlier start, nobody knows any more who had it.
        if service == 0 || (self.departed.len() >= most && !self.departed.contains_key(&(service, id))) {
            return self.add_unlisted();
        }
        let backend = SocketAddr::new(backend.address, backend.port);
        let gone = self.departed.entry((service, id)).or_insert_with(|| Gone {
            backend,
            frontends: BTreeSet::new(),
        });
        // The number may have been given to another one meanwhile.
        gone.backend = backend;
        gone.frontends.extend(frontends);
    }

    /// There are some of which no more is known.
    pub fn add_unlisted(&mut self) {
        self.unlisted = true;
    }

    /// Takes all of another.
    pub fn join(&mut self, other: Self) {
        self.unlisted |= other.unlisted;
        for (key, gone) in other.departed {
            self.departed.entry(key).or_insert(gone);
        }
    }

    /// Whether backends have to be looked at for [`flow_goes`](Self::flow_goes) and [`sockets`](Self::sockets).
    pub(super) const fn asks_for_backends(&self) -> bool {
        self.unlisted
    }

    /// Whether an entry of FLOWS goes: it is of a backend that has departed from its service port, or of one that
    /// nobody has.
    pub(super) fn flow_goes(&self, key: &Tuple, flow: &Flow, there: &HashMap<BackendId, SocketAddr>) -> bool {
        if key.protocol != UDP {
            return false;
        }
        let (address, port) = if flow.flags & flow_flags::REPLY == 0 {
            (flow.to.destination, flow.to.destination_port)
        } else {
            (key.source, key.source_port)
        };
        let backend = SocketAddr::new(address.into(), port.get());
        let departed = self.departed.get(&(flow.service, flow.backend));
        departed.is_some_and(|gone| gone.backend == backend)
            || (self.unlisted && there.get(&flow.backend) != Some(&backend))
    }

    /// Sockets whose connections go, by backend. `is_frontend`: whether that is one by its own address; otherwise it was
    /// a node port, at whatever address.
    pub(super) fn sockets<E>(
        &self,
        noted: &[(ReverseKey, Remembered)],
        there: &HashMap<BackendId, SocketAddr>,
        mut is_frontend: impl FnMut(&FrontendKey) -> Result<bool, E>,
    ) -> Result<HashMap<SocketAddr, HashSet<u64>>, E> {
        let mut by_backend: HashMap<SocketAddr, Vec<&BTreeSet<TransportAddress>>> = HashMap::new();
        for gone in self.departed.values() {
            by_backend.entry(gone.backend).or_default().push(&gone.frontends);
        }
        let there: HashSet<&SocketAddr> = there.values().collect();
        let mut sockets: HashMap<SocketAddr, HashSet<u64>> = HashMap::new();
        for (key, remembered) in noted.iter().filter(|(key, _)| key.backend.protocol == UDP) {
            let backend = address(&key.backend);
            let nobodys = self.unlisted && !there.contains(&backend);
            let mut departed = || -> Result<bool, E> {
                let Some(frontends) = by_backend.get(&backend) else {
                    return Ok(false);
                };
                let asked = &remembered.frontend;
                let known = |frontend| frontends.iter().any(|set| set.contains(&frontend));
                let Some(exact) = TransportAddress::from_frontend_key(*asked) else {
                    return Ok(false);
                };
                if known(exact) {
                    return Ok(true);
                }
                Ok(known(node_port(exact)) && !is_frontend(asked)?)
            };
            if nobodys || departed()? {
                sockets.entry(backend).or_default().insert(key.cookie);
            }
        }
        Ok(sockets)
    }
}

pub(super) fn address(backend: &Backend) -> SocketAddr {
    SocketAddr::new(backend.address.into(), backend.port.get())
}

/// The frontend that stands for a node port at every address of its family.
fn node_port(at: TransportAddress) -> TransportAddress {
    let address: IpAddr = match at.address {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    TransportAddress {
        protocol: Protocol::Udp,
        address,
        port: at.port,
    }
}

#[cfg(test)]
mod tests;
