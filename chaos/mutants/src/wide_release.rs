//! Incident 1 and its family: a release for one Service also takes a backend from others.
//!
//! [`WideRelease::by_prefix`] is Cilium issue 43619 in version 1.18.5. That agent's table had one instance of a backend
//! for each Service, under the Service's name, and searched instances by a prefix of bytes, so a release for `test`
//! also found the instance of `test-extended`. The table was wrong then, but the maps were not: they are written for a
//! Service only when it is reconciled. Its next Service event, any annotation, removed the backend. Any write to the
//! victim's slice restores the instance. The other variants search instances by keys that are equal for several
//! Services, and otherwise behave the same.

use std::collections::{BTreeSet, HashMap};

use reference_agent::{
    control::{DesiredState, Planner},
    endpoint_address::TransportAddress,
    model::{Dirty, Event, Model, Slice},
    names::{ObjectId, ObjectName},
    plan::{PortPlan, ServicePlan, Set},
};

/// Backends, each an address, a port and a protocol.
type Instances = BTreeSet<TransportAddress>;

/// Whether a release of the first for a Service also takes the second, an instance of the same or another Service.
type Takes = fn((&ObjectName, &TransportAddress), (&ObjectName, &TransportAddress)) -> bool;

/// Where a missing instance is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// At every frontend.
    Everywhere,
    /// At all frontends except the ClusterIP's.
    OutsideClusterIp,
}

/// The planner, and the instances that the table has lost.
#[derive(Debug)]
pub struct WideRelease {
    planner: Planner,
    takes: Takes,
    missing: Missing,
    slices: HashMap<ObjectName, Listed>,
    /// Instances missing in the table, by Service.
    lost: HashMap<ObjectName, Instances>,
    /// Instances missing in the maps too: those missing in the table when the Service was last reconciled for its own
    /// event.
    shown: HashMap<ObjectName, Instances>,
}

#[derive(Debug)]
struct Listed {
    owner: ObjectName,
    instances: Instances,
}

impl WideRelease {
    /// Releases from every Service whose `namespace/name` is longer and begins with the Service's own.
    pub fn by_prefix(planner: Planner) -> Self {
        Self::new(planner, |(owner, released), (other, instance)| {
            released == instance && begins(owner, other)
        })
    }

    /// As [`Self::by_prefix`], but visible at node ports, load balancers and external addresses only, not at the
    /// ClusterIP: only these are written from the table.
    pub fn by_prefix_outside(planner: Planner) -> Self {
        Self {
            missing: Missing::OutsideClusterIp,
            ..Self::by_prefix(planner)
        }
    }

    /// Releases from every Service whose namespace and name, joined by `-` or by nothing, are the same text.
    pub fn by_joined_key(planner: Planner) -> Self {
        Self::new(planner, |(owner, released), (other, instance)| {
            let joined = |separator: &str| {
                let join = |name: &ObjectName| format!("{}{separator}{}", name.namespace, name.name);
                join(owner) == join(other)
            };
            released == instance && owner != other && (joined("-") || joined(""))
        })
    }

    /// Releases from the Services of the same name in other namespaces.
    pub fn by_name_alone(planner: Planner) -> Self {
        Self::new(planner, |(owner, released), (other, instance)| {
            released == instance && owner != other && owner.name == other.name
        })
    }

    /// Releases all other ports and protocols of the address, from every Service, including its own.
    pub fn by_address(planner: Planner) -> Self {
        Self::new(planner, |(_, released), (_, instance)| {
            released.address == instance.address && released != instance
        })
    }

    fn new(planner: Planner, takes: Takes) -> Self {
        Self {
            planner,
            takes,
            missing: Missing::Everywhere,
            slices: HashMap::new(),
            lost: HashMap::new(),
            shown: HashMap::new(),
        }
    }

    fn slice_applied(&mut self, slice: &Slice) {
        let Some(owner) = slice.owner() else {
            return self.slice_deleted(&slice.name);
        };
        let instances = instances(slice);
        let listed = Listed {
            owner: owner.clone(),
            instances: instances.clone(),
        };
        if let Some(before) = self.slices.insert(slice.name.clone(), listed) {
            let kept = if before.owner == owner {
                instances.clone()
            } else {
                Instances::new()
            };
            self.release(&before.owner, &before.instances - &kept);
        }
        // A written slice puts its instances into the table.
        for missing in [&mut self.lost, &mut self.shown] {
            if let Some(missing) = missing.get_mut(&owner) {
                missing.retain(|instance| !instances.contains(instance));
            }
        }
    }

    fn slice_deleted(&mut self, name: &ObjectName) {
        if let Some(Listed { owner, instances }) = self.slices.remove(name) {
            self.release(&owner, instances);
        }
    }

    /// Releases for a Service, and for every other one that the bug confuses with it.
    fn release(&mut self, owner: &ObjectName, gone: Instances) {
        for released in gone {
            for Listed {
                owner: other,
                instances,
            } in self.slices.values()
            {
                let taken = instances
                    .iter()
                    .filter(|instance| (self.takes)((owner, &released), (other, instance)));
                for instance in taken {
                    self.lost.entry(other.clone()).or_default().insert(*instance);
                }
            }
        }
    }
}

fn begins(owner: &ObjectName, other: &ObjectName) -> bool {
    let (owner, other) = (owner.to_string(), other.to_string());
    other.len() > owner.len() && other.as_bytes().starts_with(owner.as_bytes())
}

/// The backends of frontends besides the ClusterIP: all except the missing ones, as a set of their own.
fn without_outside(port: &mut PortPlan, shown: &Instances) {
    if port
        .cluster
        .iter()
        .all(|backend| !shown.contains(&backend.address))
    {
        return;
    }
    port.local.clone_from(&port.cluster);
    port.local.retain(|backend| !shown.contains(&backend.address));
    for frontend in port.frontends.values_mut().filter(|frontend| !frontend.own) {
        (frontend.internal, frontend.external) = (Set::Local, Set::Local);
    }
}

/// Every serving endpoint, ready or terminating, with every port.
fn instances(slice: &Slice) -> Instances {
    let endpoints = slice.endpoints.iter();
    let serving = endpoints.filter(|endpoint| endpoint.ready || (endpoint.serving && endpoint.terminating));
    serving
        .flat_map(|endpoint| {
            slice.ports.iter().map(|port| TransportAddress {
                protocol: port.protocol,
                address: endpoint.address,
                port: port.port,
            })
        })
        .collect()
}

impl DesiredState for WideRelease {
    fn apply(&mut self, event: Event) -> Dirty {
        match &event {
            Event::SliceApplied(slice) => self.slice_applied(slice),
            Event::SliceDeleted(name) => self.slice_deleted(name),
            Event::ServiceApplied(service) => {
                let lost = self.lost.get(&service.name).cloned().unwrap_or_default();
                self.shown.insert(service.name.clone(), lost);
            }
            Event::ServiceDeleted(name) => _ = self.shown.remove(name),
            Event::NodeApplied(_)
            | Event::NodeDeleted(_)
            | Event::ServiceCidrApplied(_)
            | Event::ServiceCidrDeleted(_)
            | Event::ServiceRanges(_)
            | Event::Host(_)
            | Event::ApiServers(_)
            | Event::Synced(_) => {}
        }
        self.planner.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.planner.plan_service(service);
        if let Some(shown) = self
            .planner
            .model()
            .name(service)
            .and_then(|name| self.shown.get(name))
        {
            for port in plan.ports.values_mut() {
                match self.missing {
                    Missing::Everywhere => {
                        for set in [&mut port.cluster, &mut port.local, &mut port.serving] {
                            set.retain(|backend| !shown.contains(&backend.address));
                        }
                    }
                    Missing::OutsideClusterIp => without_outside(port, shown),
                }
            }
        }
        plan
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
