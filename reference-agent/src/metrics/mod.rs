//! The agent's Prometheus metrics, as documented in `METRICS.md`.
//!
//! No label has the name of an object, so that this file bounds the number of series.

mod labelled;

use std::sync::Arc;

use prometheus_client::{
    encoding::text,
    metrics::{
        counter::Counter,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use self::labelled::Register;
pub use self::labelled::{Description, Labelled};

/// All metrics of one agent. Clones are the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    descriptions: Arc<[Description]>,
    /// 1 while `/readyz` answers 200.
    pub ready: Labelled<Gauge, 0>,
    /// Version of the agent.
    pub build: Labelled<Gauge, 1>,
    /// Time from an event in this process to the maps.
    pub programming: Histogram,
    /// Time from a change in the cluster to the maps.
    pub network_programming: Histogram,
    /// One round of reconciling with something to do.
    pub round: Histogram,
    /// By kind.
    pub serving: Labelled<Gauge, 1>,
    /// By reason.
    pub findings: Labelled<Gauge, 1>,
    /// Failed or waiting writes.
    pub outstanding: Labelled<Gauge, 0>,
    /// Rounds with retries of failed writes.
    pub retries: Labelled<Counter, 0>,
    /// By map.
    pub map_entries: Labelled<Gauge, 1>,
    /// By map.
    pub map_capacity: Labelled<Gauge, 1>,
    /// The size of Maglev's tables.
    pub maglev: Labelled<Gauge, 0>,
    /// Audits done.
    pub audits: Labelled<Counter, 0>,
    /// By map and what was wrong.
    pub drift: Labelled<Counter, 2>,
    /// One audit.
    pub audit: Histogram,
    /// By rule.
    pub decisions: Labelled<Counter, 1>,
    /// Programs of earlier loads that could not be evicted.
    pub stale_programs: Labelled<Gauge, 0>,
    /// Programs of earlier loads that were evicted.
    pub evictions: Labelled<Counter, 0>,
    /// Programs of others at the hooks of the cgroup.
    pub foreign_programs: Labelled<Gauge, 0>,
    /// Entries of CONNTRACK that went with their backend or frontend.
    pub udp_flows_ended: Labelled<Counter, 0>,
    /// Connected UDP sockets that went with their backend or frontend.
    pub udp_sockets_ended: Labelled<Counter, 0>,
    /// Backends and frontends whose UDP flows and sockets are yet to be ended.
    pub udp_waiting: Labelled<Gauge, 0>,
    /// Attempts to end UDP flows or sockets that failed.
    pub udp_failures: Labelled<Counter, 0>,
    /// By outcome.
    pub probes: Labelled<Counter, 1>,
    /// By kind and cause.
    pub watch_restarts: Labelled<Counter, 2>,
    /// By kind and manner.
    pub lists: Labelled<Counter, 2>,
    /// By address.
    pub api_server: Labelled<Gauge, 1>,
    /// By outcome.
    pub events: Labelled<Counter, 1>,
    /// Health check node ports that are served.
    pub health_check_servers: Labelled<Gauge, 0>,
    /// By code.
    pub health_check_answers: Labelled<Counter, 1>,
    /// By state.
    pub pod_routes: Labelled<Gauge, 1>,
    /// Attempts to set up the pods' network that failed in part.
    pub pod_network_failures: Labelled<Counter, 0>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut register = Register::new();
        let register = &mut register;
        let ready = register.gauge(
            "ready",
            [],
            "1 if /readyz answered 200 when the control loop came round last, otherwise 0.",
        );
        let build = register.gauge("build_info", ["version"], "1, with the version of the agent.");
        let programming = register.histogram(
            "programming_seconds",
            "From the arrival of an event at the agent, first lists excepted, until the maps say what it says, in seconds.",
            exponential_buckets(0.000_25, 2.0, 18),
        );
        // kube-proxy's own buckets for the same measure.
        let network_programming = register.histogram(
            "network_programming_seconds",
            "From a change of an endpoint, as the EndpointSlice's annotation \
             endpoints.kubernetes.io/last-change-trigger-time dates it, until the maps say it, in seconds; comparable to \
             kubeproxy_network_programming_duration_seconds, and as exact as the clocks of two machines agree.",
            [0.25, 0.5]
                .into_iter()
                .chain((1..60).map(f64::from))
                .chain((60..120).step_by(5).map(f64::from))
                .chain((120..=300).step_by(30).map(f64::from)),
        );
        let round = register.histogram(
            "reconcile_seconds",
            "Duration of a round of the control loop that had events or retries to carry into the maps, in seconds.",
            exponential_buckets(0.000_05, 2.0, 18),
        );
        let serving = register.gauge(
            "serving",
            ["what"],
            "How much is served: services (balanced ones), frontends, backends (distinct ones), slots (of all service ports).",
        );
        let findings = register.gauge(
            "findings",
            ["reason"],
            "Findings that last, by reason; SERVICES.md lists the reasons.",
        );
        let outstanding = register.gauge(
            "outstanding",
            [],
            "Service ports that are not written as planned, and groups of entries that are not removed yet; each is tried again.",
        );
        let retries = register.counter(
            "retries",
            [],
            "Rounds of the control loop in which failed writes were tried again.",
        );
        let map_entries = register.gauge("map_entries", ["map"], "Entries of a map that the agent fills.");
        let map_capacity = register.gauge("map_capacity", ["map"], "Entries that a map has room for.");
        let maglev = register.gauge(
            "maglev_slots_per_backend",
            [],
            "How many slots Maglev's tables have at least for each backend: 100, or 25, 16 or 1 while all of them take more \
             than half of SLOTS otherwise (SERVICES.md); 0 where backends are chosen at random.",
        );
        let audits = register.counter(
            "audits",
            [],
            "Audits: comparisons of all maps with what was written.",
        );
        let drift = register.counter(
            "drift",
            ["map", "what"],
            "Entries that an audit found different from what was written: missing, wrong, or foreign; each was repaired.",
        );
        let audit = register.histogram(
            "audit_seconds",
            "Duration of the audit of one map, in seconds.",
            exponential_buckets(0.001, 2.0, 14),
        );
        let decisions = register.counter(
            "decisions",
            ["rule"],
            "What the programs decided on sockets and packets, drops among them, by the rule that decided (DATAPATH.md), since the maps were made.",
        );
        let stale_programs = register.gauge(
            "stale_programs",
            [],
            "Programs of an earlier load that are attached and could not be evicted.",
        );
        let evictions = register.counter("evictions", [], "Programs of an earlier load that were evicted.");
        let foreign_programs = register.gauge(
            "foreign_programs",
            [],
            "Programs of others at the hooks of the node's cgroup. They stay.",
        );
        let udp_flows_ended = register.counter(
            "udp_flows_ended",
            [],
            "Entries of CONNTRACK that were removed because their UDP backend serves no more, or their frontend is another Service's.",
        );
        let udp_sockets_ended = register.counter(
            "udp_sockets_ended",
            [],
            "Connected UDP sockets that were told that their backend serves no more, or their frontend is another Service's.",
        );
        let udp_waiting = register.gauge(
            "udp_waiting",
            [],
            "UDP backends that serve no more, and frontends that are another Service's, whose flows and sockets are yet to be ended.",
        );
        let udp_failures = register.counter(
            "udp_failures",
            [],
            "Attempts to end flows or sockets of UDP that failed. Each is made five times at most; what is left then is the flow's or socket's own time limit's.",
        );
        let probes = register.counter(
            "probes",
            ["outcome"],
            "The agent's own probes through the programs: served or failed.",
        );
        let watch_restarts = register.counter(
            "watch_restarts",
            ["kind", "cause"],
            "Lists and watches that ended otherwise than by their time limit, each try by itself: refused, broken (also: ended at once), silent, expired, unreadable.",
        );
        let lists = register.counter(
            "lists",
            ["kind", "manner"],
            "Complete lists of a kind: streamed or paged.",
        );
        let api_server = register.gauge(
            "api_server",
            ["address"],
            "1 for the API server that answered last, 0 for the others that the agent would try.",
        );
        let events = register.counter(
            "events",
            ["outcome"],
            "Kubernetes Events about findings: posted, failed, or dropped because too many waited.",
        );
        let health_check_servers = register.gauge(
            "health_check_servers",
            [],
            "Health check node ports that are served.",
        );
        let health_check_answers = register.counter(
            "health_check_answers",
            ["code"],
            "Answers of health check node ports by HTTP status code.",
        );
        let pod_routes = register.gauge(
            "pod_routes",
            ["state"],
            "Routes to pods of other nodes (--pod-network): planned (of the Nodes), set (that the kernel has).",
        );
        let pod_network_failures = register.counter(
            "pod_network_failures",
            [],
            "Attempts to set up the network of pods, or to take away that of an earlier start, of which a part failed; each is followed by another.",
        );
        let (registry, descriptions) = std::mem::replace(register, Register::new()).finish();
        build.at([env!("CARGO_PKG_VERSION")]).set(1);
        Self {
            registry: Arc::new(registry),
            descriptions: descriptions.into(),
            ready,
            build,
            programming,
            network_programming,
            round,
            serving,
            findings,
            outstanding,
            retries,
            map_entries,
            map_capacity,
            maglev,
            audits,
            drift,
            audit,
            decisions,
            stale_programs,
            evictions,
            foreign_programs,
            udp_flows_ended,
            udp_sockets_ended,
            udp_waiting,
            udp_failures,
            probes,
            watch_restarts,
            lists,
            api_server,
            events,
            health_check_servers,
            health_check_answers,
            pod_routes,
            pod_network_failures,
        }
    }

    /// What is measured, in the order of METRICS.md.
    pub fn descriptions(&self) -> &[Description] {
        &self.descriptions
    }

    /// All metrics in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        match text::encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(error) => format!("# failed to encode: {error}\n# EOF\n"),
        }
    }
}
