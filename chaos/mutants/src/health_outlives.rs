//! A process of the agent's answers health checks in its place, and outlives it.
//!
//! The bug of an agent that has health checks answered by a helper, outside of its own cgroup so that updates of the agent
//! don't interrupt it: once the agent is dead, the helper goes on with the last that it was given.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    net::{Ipv6Addr, TcpListener},
    os::unix::process::parent_id,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

/// How often the helper looks whether the agent is there, and then for connections.
const POLL: Duration = Duration::from_millis(20);
/// How long it answers after the agent's end: longer than any limit for that in a lab. Then nothing is left of it.
const ANSWERS: Duration = Duration::from_secs(150);

/// A planner that starts a helper for each health check node port.
pub struct HealthOutlives<F> {
    planner: Planner,
    ports: BTreeSet<u16>,
    start: F,
}

impl<F: FnMut(u16) + Send> HealthOutlives<F> {
    /// Wraps the production agent's planner. `start` gets each port once.
    pub fn new(planner: Planner, start: F) -> Self {
        Self {
            planner,
            ports: BTreeSet::new(),
            start,
        }
    }
}

impl<F: FnMut(u16) + Send> DesiredState for HealthOutlives<F> {
    fn apply(&mut self, event: Event) -> Dirty {
        if let Event::ServiceApplied(service) = &event
            && let Some(port) = service.health_check_port
            && self.ports.insert(port)
        {
            (self.start)(port);
        }
        self.planner.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        self.planner.plan_service(service)
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}

/// The helper: leaves the agent's cgroup for one above, waits until the agent has ended, and answers all that ask at `port`
/// with 200 for 150 s.
///
/// # Errors
/// The cgroup's or the socket's.
pub fn answer_after(port: u16, cgroup: &Path) -> io::Result<()> {
    let agent = parent_id();
    std::fs::write(cgroup.join("cgroup.procs"), "0")?;
    while parent_id() == agent {
        sleep(POLL);
    }
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
    listener.set_nonblocking(true)?;
    let ends = Instant::now() + ANSWERS;
    while Instant::now() < ends {
        match listener.accept() {
            Ok((mut client, _)) => {
                // Who hangs up before has no answer to read.
                let _ =
                    client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
            Err(_) => sleep(POLL),
        }
    }
    Ok(())
}
