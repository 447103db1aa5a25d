//! A history, read for what came before a breakage: versions of objects, writes, faults, and the names of backends.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use harness::{
    compressed::each_line,
    history::HISTORY,
    names::{Key, Kind},
};
use serde::Deserialize;
use serde_json::Value;

/// The label by which a slice names its Service.
const OF_SERVICE: &str = "/metadata/labels/kubernetes.io~1service-name";

/// The needed lines of a history.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Line {
    Write {
        verb: String,
        #[serde(flatten)]
        key: Key,
        sent_us: u64,
        resource_version: String,
    },
    Seen {
        #[serde(flatten)]
        key: Key,
        resource_version: String,
        deleted: bool,
        object: Value,
    },
    Fault {
        what: String,
    },
    Backend {
        server: String,
        addresses: Vec<IpAddr>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Entry {
    time_us: u64,
    #[serde(flatten)]
    line: Line,
}

/// All of a history that explains a breakage.
#[derive(Debug, Default)]
pub(super) struct Events {
    began_us: Option<u64>,
    versions: BTreeMap<Key, Vec<Version>>,
    steps: Vec<(u64, Step)>,
    /// Servers at an address: several, if they share the network of a node.
    servers: HashMap<IpAddr, BTreeSet<String>>,
}

/// A version of an object, as the suite's own watch has shown it.
#[derive(Debug)]
struct Version {
    at_us: u64,
    resource_version: String,
    deleted: bool,
    object: Value,
}

/// What the suite has done.
#[derive(Debug)]
pub(super) enum Step {
    Write(Write),
    Fault(String),
}

/// A write to the API.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) verb: String,
    pub(super) key: Key,
    /// When it was sent.
    pub(super) sent_us: u64,
    acknowledged_us: u64,
    resource_version: String,
}

/// A Service, and by what it was dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frontend {
    pub(super) service: Key,
    pub(super) access: Access,
}

/// The address by which a Service is dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalIp,
}

/// A ready endpoint of a slice on one of its ports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Endpoint {
    pub(super) address: IpAddr,
    port: u64,
    protocol: String,
}

impl Events {
    /// The history in a folder of evidence. Lines that the end of their process cut off are ignored.
    pub(super) fn read(evidence: &Path) -> io::Result<Self> {
        let mut events = Self::default();
        each_line(&evidence.join(HISTORY), |line| {
            if let Ok(entry) = serde_json::from_str(line) {
                events.add(entry);
            }
        })?;
        events.steps.sort_by_key(|(at_us, _)| *at_us);
        Ok(events)
    }

    fn add(&mut self, Entry { time_us, line }: Entry) {
        self.began_us.get_or_insert(time_us);
        match line {
            Line::Write {
                verb,
                key,
                sent_us,
                resource_version,
            } => {
                let write = Write {
                    verb,
                    key,
                    sent_us,
                    acknowledged_us: time_us,
                    resource_version,
                };
                self.steps.push((sent_us, Step::Write(write)));
            }
            Line::Seen {
                key,
                resource_version,
                deleted,
                object,
            } => self.versions.entry(key).or_default().push(Version {
                at_us: time_us,
                resource_version,
                deleted,
                object,
            }),
            Line::Fault { what } => self.steps.push((time_us, Step::Fault(what))),
            Line::Backend { server, addresses } => {
                for address in addresses {
                    self.servers.entry(address).or_default().insert(server.clone());
                }
            }
            Line::Other => {}
        }
    }

    /// When the case began, microseconds since the Unix epoch.
    pub(super) fn began_us(&self) -> Option<u64> {
        self.began_us
    }

    /// Writes and faults until then, the latest first.
    pub(super) fn before(&self, at_us: u64) -> impl Iterator<Item = (u64, &Step)> {
        let steps = self.steps.iter().rev();
        steps
            .filter(move |(sent_us, _)| *sent_us <= at_us)
            .map(|(sent_us, step)| (*sent_us, step))
    }

    /// The server at an address, if there is only one.
    pub(super) fn server(&self, address: IpAddr) -> Option<&str> {
        let servers = self.servers.get(&address)?;
        servers.first().filter(|_| servers.len() == 1).map(String::as_str)
    }

    /// An object as it was then; `None` before its creation and after its deletion.
    pub(super) fn object(&self, key: &Key, at_us: u64) -> Option<&Value> {
        let mut latest_first = self.versions.get(key)?.iter().rev();
        let last = latest_first.find(|version| version.at_us <= at_us)?;
        (!last.deleted).then_some(&last.object)
    }

    /// When an object was seen first; 0 for one that never was.
    pub(super) fn first_seen(&self, key: &Key) -> u64 {
        let versions = self.versions.get(key);
        versions
            .and_then(|versions| versions.first())
            .map_or(0, |first| first.at_us)
    }

    /// An object before a write and after it.
    pub(super) fn around(&self, write: &Write) -> (Option<&Value>, Option<&Value>) {
        let versions = self.versions.get(&write.key).map_or(&[][..], Vec::as_slice);
        if write.verb == "delete" {
            let mut until = versions
                .iter()
                .rev()
                .filter(|one| one.at_us <= write.acknowledged_us);
            return (until.find(|one| !one.deleted).map(|one| &one.object), None);
        }
        let made = |one: &Version| one.resource_version == write.resource_version;
        let Some(at) = versions.iter().position(made) else {
            return (None, None);
        };
        let before = at.checked_sub(1).map(|before| &versions[before]);
        let before = before.filter(|one| !one.deleted).map(|one| &one.object);
        (before, Some(&versions[at].object))
    }

    /// Slices of a Service then.
    pub(super) fn slices(&self, service: &Key, at_us: u64) -> Vec<(&Key, &Value)> {
        self.versions
            .keys()
            .filter(|key| key.kind == Kind::EndpointSlice && key.namespace == service.namespace)
            .filter_map(|key| Some((key, self.object(key, at_us)?)))
            .filter(|(_, slice)| {
                slice.pointer(OF_SERVICE).and_then(Value::as_str) == Some(service.name.as_str())
            })
            .collect()
    }

    /// Whether a Service had a slice before.
    pub(super) fn had_slices(&self, service: &Key, at_us: u64) -> bool {
        let slices = self
            .versions
            .iter()
            .filter(|(key, _)| key.kind == Kind::EndpointSlice);
        let mut versions = slices.flat_map(|(key, versions)| versions.iter().map(move |one| (key, one)));
        versions.any(|(key, one)| one.at_us < at_us && service_of(key, &one.object).as_ref() == Some(service))
    }

    /// Ready endpoints of a Service then.
    pub(super) fn endpoints(&self, service: &Key, at_us: u64) -> BTreeSet<Endpoint> {
        let slices = self.slices(service, at_us).into_iter();
        slices.flat_map(|(_, slice)| ready(slice)).collect()
    }

    /// The Service that has, or last had, an address then.
    pub(super) fn frontend(&self, dialled: SocketAddr, at_us: u64) -> Option<Frontend> {
        let services = self.versions.iter().filter(|(key, _)| key.kind == Kind::Service);
        let held = services.filter_map(|(key, versions)| {
            let mut until = versions.iter().rev().filter(|one| one.at_us <= at_us);
            let (held_us, access) = until.find_map(|one| Some((one.at_us, access(&one.object, dialled)?)))?;
            let holds = self
                .object(key, at_us)
                .is_some_and(|object| access_is_same(object, dialled, access));
            Some(((holds, held_us), key, access))
        });
        let (_, service, access) = held.max_by_key(|(order, ..)| *order)?;
        Some(Frontend {
            service: service.clone(),
            access,
        })
    }
}

fn access_is_same(service: &Value, dialled: SocketAddr, expected: Access) -> bool {
    access(service, dialled) == Some(expected)
}

/// By which of its addresses a Service is dialled.
fn access(service: &Value, dialled: SocketAddr) -> Option<Access> {
    let address = dialled.ip();
    let has = |text: Option<&str>| text.and_then(|text| text.parse::<IpAddr>().ok()) == Some(address);
    let any = |at: &str| {
        let listed = service.pointer(at).and_then(Value::as_array);
        listed.is_some_and(|all| all.iter().any(|one| has(one.as_str().or(one["ip"].as_str()))))
    };
    let port_is = |field: &str| {
        let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
        ports.any(|port| port[field].as_u64() == Some(dialled.port().into()))
    };
    if port_is("port") {
        if any("/spec/clusterIPs") || has(service["spec"]["clusterIP"].as_str()) {
            return Some(Access::ClusterIp);
        }
        if any("/status/loadBalancer/ingress") {
            return Some(Access::LoadBalancer);
        }
        if any("/spec/externalIPs") {
            return Some(Access::ExternalIp);
        }
    }
    port_is("nodePort").then_some(Access::NodePort)
}

/// The Service that a slice is of.
pub(super) fn service_of(slice: &Key, object: &Value) -> Option<Key> {
    Some(Key {
        kind: Kind::Service,
        namespace: slice.namespace.clone(),
        name: object.pointer(OF_SERVICE)?.as_str()?.to_owned(),
    })
}

/// The ready endpoints of a slice, on each of its ports.
pub(super) fn ready(slice: &Value) -> BTreeSet<Endpoint> {
    let ports: Vec<(u64, String)> = slice["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            (port["port"].as_u64().unwrap_or_default(), protocol.to_owned())
        })
        .collect();
    let on_ports = |address: IpAddr| {
        let ports = ports.iter();
        ports.map(move |(port, protocol)| Endpoint {
            address,
            port: *port,
            protocol: protocol.clone(),
        })
    };
    // An endpoint without the condition counts as ready.
    let is_ready = |endpoint: &&Value| endpoint["conditions"]["ready"].as_bool() != Some(false);
    listed(slice, is_ready).flat_map(on_ports).collect()
}

/// The addresses of a slice's endpoints, ready or not.
pub(super) fn all(slice: &Value) -> BTreeSet<IpAddr> {
    listed(slice, |_| true).collect()
}

fn listed<'a>(slice: &'a Value, test: impl Fn(&&'a Value) -> bool) -> impl Iterator<Item = IpAddr> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let addresses = endpoints
        .filter(test)
        .flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten());
    addresses.filter_map(|address| address.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_is_found_by_each_of_its_addresses_also_after_its_deletion() {
        let mut events = Events::default();
        let mut seen = |name: &str, time_us: u64, deleted: bool, cluster_ip: &str| {
            let service = json!({
                "spec": {
                    "clusterIPs": [cluster_ip], "externalIPs": ["198.51.100.7"],
                    "ports": [{ "port": 80, "nodePort": 30_080 }],
                },
                "status": { "loadBalancer": { "ingress": [{ "ip": "203.0.113.7" }] } },
            });
            let line = json!({
                "time_us": time_us, "event": "seen", "kind": "Service", "namespace": "n", "name": name,
                "resource_version": "1", "deleted": deleted, "object": service,
            });
            events.add(serde_json::from_value(line).unwrap());
        };
        seen("gone", 1, false, "10.96.0.1");
        seen("gone", 5, true, "10.96.0.1");
        seen("later", 9, false, "10.96.0.1");
        let found = |dialled: &str, at_us| {
            let found = events.frontend(dialled.parse().unwrap(), at_us)?;
            Some((found.service.name, found.access))
        };
        let gone = |access| Some(("gone".to_owned(), access));
        assert_eq!(found("10.96.0.1:80", 3), gone(Access::ClusterIp));
        assert_eq!(found("10.96.0.1:80", 7), gone(Access::ClusterIp));
        assert_eq!(found("172.30.0.1:30080", 7), gone(Access::NodePort));
        assert_eq!(found("203.0.113.7:80", 7), gone(Access::LoadBalancer));
        assert_eq!(found("198.51.100.7:80", 7), gone(Access::ExternalIp));
        assert_eq!(found("10.96.0.1:81", 7), None);
        assert_eq!(found("10.96.0.1:80", 0), None, "before it was there");
        let later = Some(("later".to_owned(), Access::ClusterIp));
        assert_eq!(found("10.96.0.1:80", 9), later, "the one that has it now");
    }
}
