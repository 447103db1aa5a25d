//! ClusterIPs and node ports: which are assigned, and which are free.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    ops::RangeInclusive,
};

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::{
    config::{Config, host_bits},
    kinds::{self, ServiceType, ports, wants_health_port, wants_node_ports},
    status::FieldError,
};

/// Assigned addresses and ports. They are chosen at random, as upstream does, so that none is reused at once.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    cidrs: Vec<IpNet>,
    used: HashSet<IpAddr>,
    port_range: RangeInclusive<u16>,
    /// Node port → protocols that use it; one service may use a port for several.
    used_ports: HashMap<u16, Vec<String>>,
}

/// Protocol of node ports for health checks.
const HEALTH: &str = "TCP";

impl Addresses {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            cidrs: config.service_cidrs.clone(),
            used: HashSet::new(),
            port_range: config.node_ports.clone(),
            used_ports: HashMap::new(),
        }
    }

    /// Assigns what a service lacks and releases what it no longer needs, or changes nothing.
    pub(crate) fn allocate(&mut self, new: &mut Value, old: Option<&Value>) -> Result<(), Vec<FieldError>> {
        if let Some(old) = old {
            self.release(old);
        }
        // Both are chosen before either is assigned, so that a refusal changes nothing.
        let chosen = self
            .choose_ips(new)
            .and_then(|ips| Ok((ips, self.choose_ports(new)?)));
        match chosen {
            Ok((addresses, ports)) => {
                self.hold(addresses, ports);
                Ok(())
            }
            Err(errors) => {
                if let Some(old) = old {
                    self.reserve(old);
                }
                Err(errors)
            }
        }
    }

    /// Marks what a service has as used again, after a change of it was refused.
    pub(crate) fn reserve(&mut self, service: &Value) {
        self.hold(held_addresses(service), held_ports(service));
    }

    fn hold(&mut self, addresses: Vec<IpAddr>, ports: Vec<(u16, String)>) {
        self.used.extend(addresses);
        for (number, protocol) in ports {
            self.used_ports.entry(number).or_default().push(protocol);
        }
    }

    /// Releases all that a service has.
    pub(crate) fn release(&mut self, service: &Value) {
        for address in held_addresses(service) {
            self.used.remove(&address);
        }
        for (port, protocol) in held_ports(service) {
            if let Some(protocols) = self.used_ports.get_mut(&port) {
                protocols.retain(|other| *other != protocol);
                if protocols.is_empty() {
                    self.used_ports.remove(&port);
                }
            }
        }
    }

    fn choose_ips(&self, service: &mut Value) -> Result<Vec<IpAddr>, Vec<FieldError>> {
        let kind = kinds::service_type(service);
        if kind == ServiceType::ExternalName || kinds::is_headless(service) {
            return Ok(Vec::new());
        }
        let families = service["spec"]["ipFamilies"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let mut all = service["spec"]["clusterIPs"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let shown = Value::from(all.clone());
        let mut chosen = Vec::new();
        for address in held_addresses(service) {
            let why = if !self.cidrs.iter().any(|cidr| usable(cidr, address)) {
                "the provided network does not match the current range"
            } else if self.used.contains(&address) || chosen.contains(&address) {
                "provided IP is already allocated"
            } else {
                chosen.push(address);
                continue;
            };
            let detail = format!("failed to allocate IP {address}: {why}");
            return Err(vec![FieldError::invalid("spec.clusterIPs", &shown, detail)]);
        }
        for family in families.iter().skip(all.len()) {
            let cidr = self
                .cidrs
                .iter()
                .find(|cidr| cidr.addr().is_ipv4() == (*family == "IPv4"))
                .copied();
            let Some(address) = cidr.and_then(|cidr| self.free_address(&cidr)) else {
                let detail = "failed to allocate a serviceIP: range is full";
                return Err(vec![FieldError::invalid("spec.clusterIPs", &Value::Null, detail)]);
            };
            chosen.push(address);
            all.push(address.to_string().into());
        }
        service["spec"]["clusterIP"] = all.first().cloned().unwrap_or_default();
        service["spec"]["clusterIPs"] = json!(all);
        Ok(chosen)
    }

    /// From a random offset, in the upper band of the range first: the lower one is for addresses that users choose (KEP-3070).
    fn free_address(&self, cidr: &IpNet) -> Option<IpAddr> {
        // A /112 of IPv6 has as many addresses as can be in use here; upstream's limit is a /108.
        let total = 1_u128 << host_bits(cidr).min(20);
        // The first address of the range is the network's; of an IPv4 range, the last is its broadcast.
        let last = if cidr.addr().is_ipv4() {
            total - 2
        } else {
            total - 1
        };
        let reserved = (total / 16).clamp(16, 256).min(last);
        let upper = last - reserved;
        let start = if upper == 0 {
            0
        } else {
            rand::random_range(0..upper)
        };
        let upper_band = (0..upper).map(|step| reserved + 1 + (start + step) % upper);
        upper_band
            .chain(1..=reserved)
            .map(|offset| nth(cidr, offset))
            .find(|address| !self.used.contains(address))
    }

    fn choose_ports(&self, service: &mut Value) -> Result<Vec<(u16, String)>, Vec<FieldError>> {
        let mut taken_here: Vec<(u16, String)> = Vec::new();
        // Upstream assigns one number to all protocols of a port.
        let mut of_port: HashMap<Option<u64>, u16> = HashMap::new();
        let wanted = wants_node_ports(service);
        let mut all = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
        for (index, port) in all
            .iter()
            .enumerate()
            .filter(|(_, port)| !port["nodePort"].is_null())
        {
            let protocol = port["protocol"].as_str().unwrap_or_default().to_owned();
            let number = self.claim(&port["nodePort"], &protocol, &taken_here);
            let at = format!("spec.ports[{index}].nodePort");
            let number = number.map_err(|why| vec![FieldError::invalid(at, &port["nodePort"], why)])?;
            of_port.insert(port["port"].as_u64(), number);
            taken_here.push((number, protocol));
        }
        for port in all.iter_mut().filter(|port| wanted && port["nodePort"].is_null()) {
            let protocol = port["protocol"].as_str().unwrap_or_default().to_owned();
            let shared = of_port.get(&port["port"].as_u64()).copied();
            let number = shared.or_else(|| self.free_port(&taken_here));
            let Some(number) = number else {
                let at = "spec.ports[0].nodePort";
                let why = "failed to allocate a nodePort: range is full";
                return Err(vec![FieldError::invalid(at, &Value::Null, why)]);
            };
            port["nodePort"] = number.into();
            of_port.insert(port["port"].as_u64(), number);
            taken_here.push((number, protocol));
        }
        if !all.is_empty() {
            service["spec"]["ports"] = all.into();
        }
        if wants_health_port(service) {
            let asked = service["spec"]["healthCheckNodePort"].clone();
            let number = if asked.is_null() {
                self.free_port(&taken_here)
                    .ok_or("failed to allocate a nodePort: range is full".to_owned())
            } else {
                self.claim(&asked, HEALTH, &taken_here)
            };
            let at = "spec.healthCheckNodePort";
            let number = number.map_err(|why| vec![FieldError::invalid(at, &asked, why)])?;
            service["spec"]["healthCheckNodePort"] = number.into();
            taken_here.push((number, HEALTH.to_owned()));
        }
        Ok(taken_here)
    }

    fn claim(&self, asked: &Value, protocol: &str, here: &[(u16, String)]) -> Result<u16, String> {
        let number = asked
            .as_u64()
            .and_then(|n| u16::try_from(n).ok())
            .filter(|n| self.port_range.contains(n));
        let Some(number) = number else {
            let (first, last) = (self.port_range.start(), self.port_range.end());
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {first}-{last}"
            ));
        };
        let own_other_protocol = |(n, p): &(u16, String)| *n == number && p != protocol;
        let taken = self.used_ports.contains_key(&number)
            || here
                .iter()
                .any(|held| held.0 == number && !own_other_protocol(held));
        if taken {
            Err("provided port is already allocated".into())
        } else {
            Ok(number)
        }
    }

    /// From a random offset, in the upper band of the range first: the lower one is for ports that users choose (KEP-3668).
    fn free_port(&self, here: &[(u16, String)]) -> Option<u16> {
        let (first, last) = (*self.port_range.start(), *self.port_range.end());
        let upper = u32::from(last - first) + 1 - u32::from(reserved_for_static(&self.port_range));
        let begin = last - u16::try_from(upper - 1).unwrap_or_default();
        let start = rand::random_range(0..upper);
        (0..upper)
            .map(|step| begin + u16::try_from((start + step) % upper).unwrap_or_default())
            .chain(first..begin)
            .find(|port| !self.used_ports.contains_key(port) && here.iter().all(|(held, _)| held != port))
    }
}

/// Size of the lower band of node ports, which is for ports that users choose: a 32nd of the range, between 16 and 128; none in a
/// range of 16 or fewer.
fn reserved_for_static(range: &RangeInclusive<u16>) -> u16 {
    let size = range.end() - range.start();
    match size {
        ..16 => 0,
        // The size itself is one more, and may be no u16.
        _ => (size / 32 + u16::from(size % 32 == 31)).clamp(16, 128),
    }
}

fn nth(cidr: &IpNet, offset: u128) -> IpAddr {
    match cidr.network() {
        IpAddr::V4(base) => IpAddr::V4((base.to_bits() + u32::try_from(offset).unwrap_or_default()).into()),
        IpAddr::V6(base) => IpAddr::V6((base.to_bits() + offset).into()),
    }
}

fn usable(cidr: &IpNet, address: IpAddr) -> bool {
    cidr.contains(&address) && address != cidr.network() && (address.is_ipv6() || address != cidr.broadcast())
}

fn held_addresses(service: &Value) -> Vec<IpAddr> {
    let list = service["spec"]["clusterIPs"].as_array().into_iter().flatten();
    list.filter_map(|ip| ip.as_str()?.parse().ok()).collect()
}

fn held_ports(service: &Value) -> Vec<(u16, String)> {
    let number = |value: &Value| value.as_u64().and_then(|n| u16::try_from(n).ok());
    let mut held: Vec<(u16, String)> = ports(service)
        .filter_map(|port| {
            Some((
                number(&port["nodePort"])?,
                port["protocol"].as_str().unwrap_or_default().to_owned(),
            ))
        })
        .collect();
    held.extend(number(&service["spec"]["healthCheckNodePort"]).map(|port| (port, HEALTH.to_owned())));
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_node_ports_are_reserved_for_static_as_upstream_keeps() {
        for (range, kept) in [
            (30_000..=32_767, 86),
            (30_000..=30_015, 0),
            (30_000..=30_016, 16),
            (30_000..=30_127, 16),
            (30_000..=30_543, 17),
            (30_000..=34_095, 128),
            (1..=65_535, 128),
        ] {
            assert_eq!(reserved_for_static(&range), kept, "{range:?}");
        }
    }

    fn addresses() -> Addresses {
        Addresses {
            cidrs: Vec::new(),
            used: HashSet::new(),
            port_range: 30_000..=30_019,
            used_ports: HashMap::new(),
        }
    }

    #[test]
    fn each_port_has_a_node_port_of_its_own_whichever_protocols_it_has() {
        let port = |number: u16, protocol| json!({ "port": number, "protocol": protocol });
        let mut asked = port(82, "TCP");
        asked["nodePort"] = 30_003.into();
        let all = [
            port(80, "TCP"),
            port(80, "UDP"),
            port(81, "TCP"),
            port(81, "UDP"),
            port(82, "UDP"),
            asked,
        ];
        let mut service = json!({ "spec": { "type": "NodePort", "ports": all } });
        addresses().choose_ports(&mut service).unwrap();
        let given: Vec<u64> = ports(&service)
            .filter_map(|port| port["nodePort"].as_u64())
            .collect();
        assert_eq!(
            (given[0], given[2], given[4]),
            (given[1], given[3], given[5]),
            "{given:?}"
        );
        assert!(given[0] != given[2] && given[4] == 30_003, "{given:?}");
    }

    #[test]
    fn node_ports_are_assigned_from_the_upper_band_first() {
        let mut all = addresses();
        let given: Vec<u16> = std::iter::from_fn(|| {
            let port = all.free_port(&[])?;
            all.used_ports.insert(port, vec!["TCP".to_owned()]);
            Some(port)
        })
        .take(21)
        .collect();
        assert!(given[..4].iter().all(|port| *port >= 30_016), "{given:?}");
        assert_eq!(given[4..], (30_000..30_016).collect::<Vec<u16>>());
    }
}
