//! Every limit of the kind provider.

use std::time::Duration;

/// Time limits. They bound waits that end within seconds, on a machine that is busy with a build.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// One Docker command; loading an image is the longest.
    pub docker: Duration,
    /// One kind command: creating a cluster, which may pull its node image first.
    pub kind: Duration,
    /// From the start of an agent until it is ready.
    pub agents_ready: Duration,
    /// One request to an agent's readiness endpoint.
    pub agent_ready: Duration,
    /// One count of the programs, pins and rules of a node.
    pub count: Duration,
    /// From a change of its manifest until an API server has ended, with its open requests completed, or is ready.
    pub api_server: Duration,
    /// From the creation of a policy until each API server enforces it: policies are read every second.
    pub policy: Duration,
    /// From the removal of such a policy until `default/kubernetes` is correct: an API server may have to start
    /// first, and they reconcile every 10 s. The lease of a fault waits 80 s for its end.
    pub reconciled: Duration,
    /// Interval between checks of an API server by the balancer.
    pub balancer_look: Duration,
    /// Limit of such a check.
    pub balancer_answer: Duration,
    /// Consecutive checks without a response after which a ready API server counts as not ready.
    pub balancer_silences: u32,
    /// From the end of load balancers until Services have released their addresses.
    pub give_back: Duration,
    /// One request to the API.
    pub request: Duration,
    /// Interval between checks of a condition.
    pub look: Duration,
}

/// The limits in force.
pub const LIMITS: Limits = Limits {
    docker: Duration::from_secs(120),
    kind: Duration::from_secs(600),
    agents_ready: Duration::from_secs(120),
    agent_ready: Duration::from_secs(1),
    count: Duration::from_secs(30),
    api_server: Duration::from_secs(60),
    policy: Duration::from_secs(30),
    reconciled: Duration::from_secs(75),
    balancer_look: Duration::from_millis(200),
    balancer_answer: Duration::from_secs(2),
    balancer_silences: 3,
    give_back: Duration::from_secs(20),
    request: Duration::from_secs(10),
    look: Duration::from_millis(100),
};
