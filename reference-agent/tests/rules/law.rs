//! The plan of everything is made of the plans of each, whatever the order of events; and an event marks every one
//! whose plan it changes.

use std::{collections::BTreeMap, net::SocketAddr};

use proptest::{prelude::*, sample::Index};
use reference_agent::{
    endpoint_address::Range,
    model::{Event, Host, Model, Node, Policy, Probe, Service, Slice, SourceRanges},
    names::{ObjectId, ObjectName},
    plan::{self, Perspective, Selection, ServicePlan},
    testing::objects::{address, name as name_of, service, slice},
};

use super::support::{here, ips, ranges, with_endpoints};

// Few names and addresses, so that they meet: names that begin with one another, also across the border between
// namespace and name; cluster IPs that are endpoints', external IPs and load balancers' that are other Services' or
// machines'.
const SERVICES: [&str; 6] = ["t/t", "t/t-ext", "t/t0", "t-ext/t", "a/b-c", "a-b/c"];
const CLUSTER_IPS: [&str; 6] = [
    "10.96.0.1",
    "10.96.0.2",
    "10.96.0.3,fd00:96::3",
    "10.96.0.1,fd00:96::1",
    "1.1.1.3",
    "",
];
const OTHER_IPS: [&str; 6] = [
    "",
    "10.96.0.1",
    "192.0.2.1",
    "192.0.2.1 fd00:2::1",
    "10.0.0.1",
    "192.0.2.2 10.0.0.2",
];
const PORTS: [&[&str]; 5] = [
    &["TCP 80"],
    &["TCP 80 http", "UDP 80 dns"],
    &["TCP 80 http", "TCP 81 admin"],
    &["TCP 443"],
    &[],
];
const RANGES: [(&str, u8); 2] = [("198.51.100.0", 24), ("2001:db8::", 32)];
const SLICES: [&str; 6] = ["t/1", "t/2", "t/3", "t-ext/1", "a/1", "a-b/1"];
const OWNERS: [&str; 7] = ["t", "t-ext", "t0", "b-c", "c", "b", ""];
const SLICE_PORTS: [&[&str]; 5] = [
    &["TCP 80"],
    &["TCP 8080 http", "UDP 5353 dns"],
    &["TCP 9090 http"],
    &["TCP 81 admin", "TCP 80 http"],
    &[],
];
const ENDPOINTS: [&str; 14] = [
    "1.1.1.1",
    "1.1.1.1 on:here",
    "!1.1.1.1 on:here",
    "1.1.1.2 on:here zones:a",
    "1.1.1.2 zones:b nodes:here",
    "1.1.1.3 zones:a,b",
    "1.1.1.4 on:there zones:b nodes:there",
    "~1.1.1.5 on:here",
    "~1.1.1.2",
    "?1.1.1.6",
    "-1.1.1.7",
    "10.96.0.2 zones:a",
    "fd00::1 on:here",
    "fd00:96::1",
];
const NODES: [&str; 2] = ["here", "there"];
const ZONES: [Option<&str>; 3] = [None, Some("a"), Some("b")];
const MACHINES: [&str; 5] = [
    "",
    "10.0.0.1",
    "10.0.0.2 192.0.2.1",
    "10.0.0.1 10.0.0.1",
    "192.0.2.2 fd00:2::1",
];
/// Networks of pods: one is two Nodes', by mistake.
const PODS: [&str; 4] = [
    "",
    "10.244.1.0/24",
    "10.244.2.0/24 fd00:244:2::/64",
    "10.244.1.0/24 10.0.0.1/32",
];
/// A cluster IP, a load balancer, a machine's or none's with a node port, loopback.
const API_SERVERS: [&str; 5] = [
    "10.96.0.1:80",
    "192.0.2.1:443",
    "10.0.0.1:30001",
    "[fd00::1]:30000",
    "127.0.0.1:30002",
];
const PROBES: [Option<&str>; 3] = [None, Some("TCP 10.96.0.1:80"), Some("TCP 169.254.0.1:9440")];

fn pick<T: Copy>(which: Index, all: &[T]) -> T {
    *which.get(all)
}

fn any_service() -> impl Strategy<Value = Service> {
    let names = (
        any::<Index>(),
        any::<Index>(),
        any::<Index>(),
        any::<Index>(),
        any::<Index>(),
    );
    let ages = prop::option::of(0..3_i64);
    let node_ports = prop::collection::vec(prop::option::weighted(0.4, 30000..30003_u16), 2);
    let policies = (any::<bool>(), any::<bool>());
    let rest = (
        0..8_u8,
        any::<bool>(),
        prop::option::weighted(0.3, 30000..30002_u16),
    );
    (names, ages, node_ports, policies, rest).prop_map(
        |(
            (which, ip, external, balancer, ports),
            created,
            node_ports,
            (inside, outside),
            (ranges, affinity, health),
        )| {
            let mut object = service(
                pick(which, &SERVICES),
                pick(ip, &CLUSTER_IPS),
                pick(ports, &PORTS),
            );
            let policy = |local| if local { Policy::Local } else { Policy::Cluster };
            object.created = created;
            object.external_ips = ips(pick(external, &OTHER_IPS));
            object.load_balancer_ips = ips(pick(balancer, &OTHER_IPS));
            (object.internal_policy, object.external_policy) = (policy(inside), policy(outside));
            object.affinity_seconds = u32::from(affinity) * 10_800;
            object.health_check_port = health;
            for (port, node_port) in object.ports.iter_mut().zip(node_ports) {
                port.node_port = node_port;
            }
            let ranges_of = |bits: u8| SourceRanges {
                ranges: (0..)
                    .zip(RANGES)
                    .filter(|(bit, _)| bits & (1 << bit) != 0)
                    .map(|(_, (address, length))| {
                        Range::new(address.parse().expect("an address"), length).expect("a range")
                    })
                    .collect(),
                unreadable: bits & 4 != 0,
            };
            object.source_ranges = (ranges > 0).then(|| ranges_of(ranges));
            object
        },
    )
}

fn any_slice() -> impl Strategy<Value = Slice> {
    let endpoints = prop::collection::vec(prop::sample::select(&ENDPOINTS[..]), 0..5);
    (any::<Index>(), any::<Index>(), any::<Index>(), endpoints).prop_map(
        |(which, owner, ports, endpoints)| {
            let bare = slice(
                pick(which, &SLICES),
                pick(owner, &OWNERS),
                pick(ports, &SLICE_PORTS),
                &[],
            );
            with_endpoints(bare, &endpoints)
        },
    )
}

fn any_node() -> impl Strategy<Value = Node> {
    let parts = (any::<Index>(), any::<Index>(), any::<Index>(), any::<Index>());
    parts.prop_map(|(which, zone, addresses, pods)| Node {
        name: pick(which, &NODES).to_owned(),
        zone: pick(zone, &ZONES).map(ToOwned::to_owned),
        addresses: ips(pick(addresses, &MACHINES)),
        internal: ips(pick(addresses, &MACHINES)),
        pods: ranges(pick(pods, &PODS)),
    })
}

fn any_host() -> impl Strategy<Value = Host> {
    (any::<Index>(), any::<Index>()).prop_map(|(addresses, probe)| Host {
        addresses: ips(pick(addresses, &MACHINES)).into_iter().collect(),
        probe: pick(probe, &PROBES).map(|frontend| Probe {
            frontend: address(frontend),
            backend: address("TCP 10.0.0.1:9440"),
        }),
    })
}

fn any_event() -> impl Strategy<Value = Event> {
    let deleted = |names: &'static [&str]| prop::sample::select(names).prop_map(name_of);
    prop_oneof![
        6 => any_service().prop_map(Event::ServiceApplied),
        2 => deleted(&SERVICES).prop_map(Event::ServiceDeleted),
        8 => any_slice().prop_map(Event::SliceApplied),
        2 => deleted(&SLICES).prop_map(Event::SliceDeleted),
        2 => any_node().prop_map(Event::NodeApplied),
        1 => prop::sample::select(&NODES[..]).prop_map(|name| Event::NodeDeleted(name.to_owned())),
        2 => any_host().prop_map(Event::Host),
        1 => prop::collection::vec(prop::sample::select(&API_SERVERS[..]), 0..3).prop_map(|servers| {
            let servers = servers.into_iter().map(|at| at.parse::<SocketAddr>().expect("address:port"));
            Event::ApiServers(servers.map(|at| (at.ip(), at.port())).collect())
        }),
    ]
}

/// By name, because numbers depend on the order of events; the node's own under an empty one.
type Named = BTreeMap<ObjectName, ServicePlan>;

fn named(model: &Model, perspective: &Perspective) -> Named {
    let plans = plan::plan(model, perspective).into_iter();
    plans
        .map(|(id, plan)| {
            let name = model.name(id).cloned();
            (name.unwrap_or_else(|| ObjectName::new("", "")), plan)
        })
        .collect()
}

/// The last that was said of each object, by the simplest means there are.
#[derive(Default)]
struct Told {
    services: BTreeMap<ObjectName, Service>,
    slices: BTreeMap<ObjectName, Slice>,
    nodes: BTreeMap<String, Node>,
    host: Option<Host>,
    api_servers: Option<Event>,
}

impl Told {
    fn take(&mut self, event: &Event) {
        match event.clone() {
            Event::ServiceApplied(service) => _ = self.services.insert(service.name.clone(), service),
            Event::ServiceDeleted(name) => _ = self.services.remove(&name),
            Event::SliceApplied(slice) => _ = self.slices.insert(slice.name.clone(), slice),
            Event::SliceDeleted(name) => _ = self.slices.remove(&name),
            Event::NodeApplied(node) => _ = self.nodes.insert(node.name.clone(), node),
            Event::NodeDeleted(name) => _ = self.nodes.remove(&name),
            Event::Host(host) => self.host = Some(host),
            Event::ApiServers(_) => self.api_servers = Some(event.clone()),
            Event::ServiceCidrApplied(_)
            | Event::ServiceCidrDeleted(_)
            | Event::ServiceRanges(_)
            | Event::Synced(_) => {}
        }
    }

    /// One event for each object, in another order than they came.
    fn again(&self) -> impl Iterator<Item = Event> {
        let nodes = self.nodes.values().rev().cloned().map(Event::NodeApplied);
        let slices = self.slices.values().rev().cloned().map(Event::SliceApplied);
        let services = self.services.values().rev().cloned().map(Event::ServiceApplied);
        nodes
            .chain(slices)
            .chain(self.host.clone().map(Event::Host))
            .chain(services)
            .chain(self.api_servers.clone())
    }
}

/// The parts of the plan that `dirty` does not name.
fn others<'a>(
    plan: &'a plan::Plan,
    dirty: &'a reference_agent::model::Dirty,
) -> Vec<(ObjectId, &'a ServicePlan)> {
    let plans = plan.iter().filter(|(id, _)| !dirty.contains(id));
    plans.map(|(id, plan)| (*id, plan)).collect()
}

/// So many that a few Services come to every scale of Maglev's tables.
const SLOTS: u32 = 4096;

fn with_tables() -> Perspective {
    Perspective {
        selection: Selection::Maglev,
        slots: SLOTS,
        ..here()
    }
}

fn hold(perspective: &Perspective, events: Vec<Event>) {
    let (mut model, mut told) = (Model::default(), Told::default());
    let mut before = plan::Plan::new();
    for event in events {
        told.take(&event);
        let dirty = plan::apply(&mut model, perspective, event.clone());
        let after = plan::plan(&model, perspective);
        assert_eq!(
            others(&before, &dirty),
            others(&after, &dirty),
            "{event:#?} has changed a plan that it did not mark, from left to right"
        );
        before = after;
    }

    let mut fresh = Model::default();
    for event in told.again() {
        plan::apply(&mut fresh, perspective, event);
    }
    assert_eq!(
        named(&model, perspective),
        named(&fresh, perspective),
        "from scratch on the right"
    );

    for name in SERVICES {
        model.apply(Event::ServiceDeleted(name_of(name)));
    }
    for name in SLICES {
        model.apply(Event::SliceDeleted(name_of(name)));
    }
    for name in NODES {
        model.apply(Event::NodeDeleted(name.to_owned()));
    }
    model.apply(Event::Host(Host::default()));
    assert!(named(&model, perspective).is_empty());
    assert!(
        model.is_empty(),
        "something is left of objects that are gone: {model:#?}"
    );
}

proptest! {
    // PROPTEST_CASES may ask for more.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(2048)))]

    #[test]
    fn an_event_marks_every_plan_that_it_changes_and_no_order_of_events_matters(
        events in prop::collection::vec(any_event(), 1..40)
    ) {
        hold(&here(), events.clone());
        hold(&with_tables(), events);
    }
}
