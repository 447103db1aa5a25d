//! Nodes → the plan of the pods' network: pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;

use crate::{
    endpoint_address::{Family, Range},
    model::Node,
};

/// The pods' network of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The ranges of this node's pods, the preferred family first.
    pub own: Vec<IpNet>,
    /// The ranges of other nodes' pods.
    pub routes: BTreeMap<IpNet, Hop>,
    /// Destinations to which pods keep their own address: the cluster's pods and nodes.
    pub kept: Vec<IpNet>,
    /// What of the Nodes is left out, one sentence each.
    pub troubles: Vec<String>,
}

/// The gateway of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The node's InternalIP of the range's family.
    pub gateway: IpAddr,
    /// The node.
    pub node: String,
}

/// The plan for the node of this name. The order of Nodes does not matter: of two with the same range the first by name
/// counts, and this node before all others.
pub fn plan<'a>(name: &str, nodes: impl IntoIterator<Item = &'a Node>) -> Plan {
    let nodes: BTreeMap<&str, &Node> = nodes.into_iter().map(|node| (&*node.name, node)).collect();
    let machines: BTreeSet<IpAddr> = nodes.values().flat_map(|node| &node.internal).copied().collect();
    let mut planner = Planner {
        plan: Plan::default(),
        taken: BTreeMap::new(),
        machines,
    };
    match nodes.get(name) {
        Some(own) => planner.own(own),
        None => planner.plan.troubles.push(format!(
            "there is no Node {name}, whose podCIDRs would be those of this node's pods; is --node its name?"
        )),
    }
    for node in nodes.values().filter(|node| node.name != name) {
        planner.other(node);
    }
    planner.done()
}

struct Planner<'a> {
    plan: Plan,
    /// Disjoint ranges by their first address, with their nodes.
    taken: BTreeMap<IpAddr, (IpNet, &'a str)>,
    machines: BTreeSet<IpAddr>,
}

impl<'a> Planner<'a> {
    fn own(&mut self, node: &'a Node) {
        for range in &node.pods {
            if let Some(range) = self.take(*range, node) {
                self.plan.own.push(range);
            }
        }
        if node.pods.is_empty() {
            self.plan.troubles.push(format!(
                "the Node {} has no spec.podCIDRs: its pods get no addresses; does kube-controller-manager run with \
                 --allocate-node-cidrs?",
                node.name
            ));
        }
    }

    fn other(&mut self, node: &'a Node) {
        for &range in &node.pods {
            let family = range.family();
            let Some(gateway) = node.internal.iter().find(|ip| Family::of(**ip) == family) else {
                self.plan.troubles.push(format!(
                    "pods of the node {} in {range} can't be reached: it has no InternalIP of that family",
                    node.name
                ));
                continue;
            };
            if let Some(range) = self.take(range, node) {
                let hop = Hop {
                    gateway: *gateway,
                    node: node.name.clone(),
                };
                self.plan.routes.insert(range, hop);
            }
        }
    }

    /// The range, unless it overlaps with another one, or with a node's address.
    fn take(&mut self, range: Range, node: &'a Node) -> Option<IpNet> {
        let net = IpNet::new(range.address(), range.length()).ok()?;
        let (first, last) = (net.network(), net.broadcast());
        let before = self.taken.range(..=first).next_back();
        let within = self.taken.range(first..=last).next();
        let clash = [before, within].into_iter().flatten().map(|(_, taken)| taken);
        let clash = clash
            .into_iter()
            .find(|(other, _)| other.contains(&net) || net.contains(other));
        let why = if let Some((other, whose)) = clash {
            format!("{other} is that of the node {whose}")
        } else if let Some(machine) = self.machines.range(first..=last).next() {
            format!("a node has the address {machine} of it")
        } else {
            self.taken.insert(first, (net, &node.name));
            return Some(net);
        };
        self.plan.troubles.push(format!(
            "the podCIDR {range} of the node {} is left out: {why}",
            node.name
        ));
        None
    }

    fn done(self) -> Plan {
        let Self {
            mut plan,
            taken,
            machines,
        } = self;
        let ranges = taken.into_values().map(|(range, _)| range);
        let kept: Vec<IpNet> = ranges.chain(machines.into_iter().map(IpNet::from)).collect();
        plan.kept = IpNet::aggregate(&kept);
        plan
    }
}

#[cfg(test)]
mod tests;
