//! Every limit of the embedded lab.

use std::time::Duration;

/// Time limits, numbers of attempts and sizes. They bound waits that normally end within milliseconds, on a machine
/// that is busy with a build.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From the supervisor's start until nodes are Ready and agents are started.
    pub up: Duration,
    /// As `up`, with Kubernetes' own control plane, which starts within about ten seconds on an idle machine.
    pub up_programs: Duration,
    /// From the start of kube-apiserver until it is ready.
    pub api_serves: Duration,
    /// From `down` until nothing is left.
    pub down: Duration,
    /// One request to the supervisor and its response.
    pub control: Duration,
    /// Bytes of one request or response.
    pub control_bytes: u64,
    /// Concurrent requests, including those that hold a fault; more wait in the socket's backlog.
    pub control_connections: usize,
    /// Concurrent connections through the front of the API servers.
    pub front_connections: usize,
    /// Limit for an API server to accept a connection before the front tries the next one.
    pub front_connect: Duration,
    /// From a container's start until it serves; a slower one is killed and restarted.
    pub container_ready: Duration,
    /// First wait between two starts of a container or an agent that ends by itself; doubled each time …
    pub restart_first: Duration,
    /// … up to this.
    pub restart_most: Duration,
    /// A run of this length resets the waits.
    pub restart_forget: Duration,
    /// From SIGTERM to SIGKILL for an agent (containers: `terminationGracePeriodSeconds`).
    pub agent_stop: Duration,
    /// One request to an agent's `/readyz`.
    pub agent_ready: Duration,
    /// From the start of the agents until all are ready, before `plumbline lab up` warns and goes on.
    pub agents_ready: Duration,
    /// One command that checks a kernel feature.
    pub need: Duration,
    /// One clean-up command of an agent.
    pub agent_cleanup: Duration,
    /// From the kill of a cgroup's processes until it is empty.
    pub cgroup_empty: Duration,
    /// Attempts to remove a cgroup that processes enter meanwhile.
    pub cgroup_removals: u32,
    /// Attempts to take the lock of a lab whose folder others are removing meanwhile.
    pub lock_attempts: u32,
    /// Bytes shown from the end of a log in an error.
    pub tail: u64,
    /// First wait between two tries of a write that the API server refuses, doubled up to
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
    // Twice the number of faults that can be active.
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
