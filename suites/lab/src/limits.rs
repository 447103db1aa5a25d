//! Every limit of the embedded lab.

use std::time::Duration;

/// How long things may take, how often they are tried and how much is kept. The values are the lab's own: they
/// bound waits that normally end within milliseconds, on a machine that is busy with a build.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From the supervisor's start until nodes are Ready and agents are started.
    pub up: Duration,
    /// The same with Kubernetes' own control plane, which starts within about ten seconds on a machine that is idle.
    pub up_programs: Duration,
    /// From the start of one of Kubernetes' own API servers until it serves.
    pub api_serves: Duration,
    /// From `down` until nothing is left.
    pub down: Duration,
    /// One request to the supervisor and its answer.
    pub control: Duration,
    /// Bytes of one request or answer.
    pub control_bytes: u64,
    /// Requests served at once, those that hold a fault of the API servers among them; more wait in the socket's
    /// backlog.
    pub control_connections: usize,
    /// Connections at once through the front of the API servers.
    pub front_connections: usize,
    /// How long the front waits for an API server to take a connection before it tries the next.
    pub front_connect: Duration,
    /// From a container's start until it serves; a slower one is killed and started again.
    pub container_ready: Duration,
    /// Between two starts of a container or an agent that ends by itself: the first wait, doubled each time …
    pub restart_first: Duration,
    /// … up to this.
    pub restart_most: Duration,
    /// A run that lasted this long starts the waits afresh.
    pub restart_forget: Duration,
    /// From SIGTERM to SIGKILL for an agent (containers: `terminationGracePeriodSeconds`).
    pub agent_stop: Duration,
    /// One answer of an agent's `/readyz`.
    pub agent_ready: Duration,
    /// From the start of the agents until all are ready, before `plumbline lab up` warns and goes on.
    pub agents_ready: Duration,
    /// One command that shows whether the kernel offers what a target needs.
    pub need: Duration,
    /// One clean-up command of an agent.
    pub agent_cleanup: Duration,
    /// From the killing of a cgroup's processes until none lives.
    pub cgroup_empty: Duration,
    /// Attempts to remove a cgroup into which somebody moves processes meanwhile.
    pub cgroup_removals: u32,
    /// Attempts to take the lock of a lab whose folder others are removing meanwhile.
    pub lock_attempts: u32,
    /// Bytes shown from the end of a log in an error.
    pub tail: u64,
    /// Between two tries of a write that the API server did not take: the first wait, doubled up to
    /// [`restart_most`](Self::restart_most).
    pub api_retry: Duration,
}

/// The limits in force.
pub const LIMITS: Limits = Limits {
    up: Duration::from_secs(30),
    up_programs: Duration::from_secs(120),
    api_serves: Duration::from_secs(60),
    down: Duration::from_secs(30),
    control: Duration::from_secs(10),
    control_bytes: 4 << 20,
    // Twice what can be held at once.
    control_connections: 128,
    front_connections: 1024,
    front_connect: Duration::from_secs(1),
    container_ready: Duration::from_secs(20),
    restart_first: Duration::from_millis(200),
    restart_most: Duration::from_secs(5),
    restart_forget: Duration::from_secs(10),
    agent_stop: Duration::from_secs(10),
    agent_ready: Duration::from_secs(1),
    agents_ready: Duration::from_secs(10),
    need: Duration::from_secs(10),
    agent_cleanup: Duration::from_secs(20),
    cgroup_empty: Duration::from_secs(10),
    cgroup_removals: 5,
    lock_attempts: 100,
    tail: 4096,
    api_retry: Duration::from_millis(50),
};
