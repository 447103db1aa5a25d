//! Every limit of the kind provider.

use std::time::Duration;

/// How long things may take. They bound waits that end within seconds, on a machine that is busy with a build.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// One command of Docker's; building an image of a program is the longest.
    pub docker: Duration,
    /// One command of kind's: making a cluster, which may pull its node image first.
    pub kind: Duration,
    /// From the agent's DaemonSet, or another order to it, until it runs or is gone.
    pub agent: Duration,
    /// From the start of an agent until it says that it is ready.
    pub agents_ready: Duration,
    /// One question to an agent whether it is ready.
    pub agent_ready: Duration,
    /// One clean-up command of an agent.
    pub agent_cleanup: Duration,
    /// One count of what a node has.
    pub count: Duration,
    /// From an order to kubelet until an API server has ended, which lets it answer what is under way, or serves.
    pub api_server: Duration,
    /// From an order about what API servers may write until each is seen to obey it: policies are looked at every second.
    pub policy: Duration,
    /// From an order to end such a policy until `default/kubernetes` lists what is true: an API server may have to start first,
    /// and they look every 10 s. Whoever holds a fault waits 80 s for its end.
    pub reconciled: Duration,
    /// From one look of the balancer at an API server to the next.
    pub balancer_look: Duration,
    /// How long it waits for an answer.
    pub balancer_answer: Duration,
    /// So many times in a row in vain, and an API server that was ready is taken for one that is not.
    pub balancer_silences: u32,
    /// From the end of load balancers until Services have given their addresses back.
    pub give_back: Duration,
    /// One question to the API.
    pub request: Duration,
    /// From one look at a condition to the next.
    pub look: Duration,
}

/// The limits in force.
pub const LIMITS: Limits = Limits {
    docker: Duration::from_secs(120),
    kind: Duration::from_secs(600),
    agent: Duration::from_secs(60),
    agents_ready: Duration::from_secs(120),
    agent_ready: Duration::from_secs(1),
    agent_cleanup: Duration::from_secs(20),
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
