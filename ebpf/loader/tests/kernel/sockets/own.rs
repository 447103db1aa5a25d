//! The agent's own sockets, when there are no backends: they go on with those that there were, or pass.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use lb_abi::{Counter, Service, Traffic, address_flags};
use lb_loader::{Datapath, NodeOptions, Options};

use super::{
    peers::{ask, refused, server},
    world::{Family, Protocol, ServicePort, count, counts, put_address},
};
use crate::support::{Node, isolated};

/// A node with an agent in a cgroup below the node's.
struct Agent {
    datapath: Datapath,
    node: PathBuf,
    own: PathBuf,
}

impl Agent {
    fn start(node: &Node) -> Self {
        let own = node.options.cgroup.join("agent");
        fs::create_dir(&own).expect("a cgroup");
        let options = Options {
            node: NodeOptions {
                own_cgroup: Some(own.clone()),
                ..NodeOptions::default()
            },
            ..node.options.clone()
        };
        let mut datapath = Datapath::open(&options).expect("the datapath opens");
        datapath.attach().expect("the programs are attached");
        Self {
            datapath,
            node: node.options.cgroup.clone(),
            own,
        }
    }

    /// Runs as the agent.
    fn as_own<T>(&self, run: impl FnOnce() -> T) -> T {
        let enter = |cgroup: &Path| fs::write(cgroup.join("cgroup.procs"), "0").expect("to enter the cgroup");
        enter(&self.own);
        let result = run();
        enter(&self.node);
        result
    }

    /// A service whose frontend is an address at which somebody listens: what is in front of the API servers.
    fn service(&self, protocol: Protocol, family: Family) -> Api<'_> {
        let (backend, behind) = (server(protocol, family), server(protocol, family));
        let at = if family == Family::Mapped {
            family.loopback(behind.port())
        } else {
            behind
        };
        let service = ServicePort::new(&self.datapath, 1, protocol, &[backend]);
        service.at(at);
        Api {
            service,
            protocol,
            family,
            at,
            backend,
            behind,
        }
    }
}

struct Api<'a> {
    service: ServicePort<'a>,
    protocol: Protocol,
    family: Family,
    at: SocketAddr,
    backend: SocketAddr,
    behind: SocketAddr,
}

impl Api<'_> {
    fn ask(&self) -> std::io::Result<SocketAddr> {
        let seen = ask(self.protocol, self.family, self.at)?;
        assert_eq!(seen.peer, self.at, "the frontend is shown");
        Ok(seen.server)
    }
}

#[test]
fn it_goes_on_with_the_kept_backends_then_passes_and_others_are_refused_meanwhile() {
    isolated(|node| {
        let agent = Agent::start(node);
        let (datapath, kept) = (&agent.datapath, &agent.datapath.maps().kept);
        for family in Family::ALL {
            for protocol in Protocol::BOTH {
                let api = agent.service(protocol, family);
                // As long as there are backends, it sees what everybody sees.
                assert_eq!(agent.as_own(|| api.ask()).expect("an answer"), api.backend);
                assert_eq!(api.ask().expect("an answer"), api.backend);

                kept.put(
                    &api.service.id,
                    &Service {
                        generation: 1,
                        slots: 1,
                    },
                )
                .expect("kept");
                api.service.switch(2, &[]);
                let seen = counts(datapath, Counter::OwnKept, 1, || agent.as_own(|| api.ask()));
                assert_eq!(seen.expect("an answer"), api.backend, "{family:?}");
                refused(|| api.ask());

                assert!(kept.delete(&api.service.id).expect("not kept any more"));
                let seen = counts(datapath, Counter::OwnPassed, 1, || agent.as_own(|| api.ask()));
                assert_eq!(seen.expect("an answer"), api.behind, "untranslated, {family:?}");
                refused(|| api.ask());

                // The truth comes back.
                api.service.switch(3, &[api.backend]);
                assert_eq!(agent.as_own(|| api.ask()).expect("an answer"), api.backend);
            }
        }
    });
}

#[test]
fn a_hole_is_as_good_as_no_backend_also_in_what_was_kept() {
    isolated(|node| {
        let agent = Agent::start(node);
        let (datapath, maps) = (&agent.datapath, agent.datapath.maps());
        for family in Family::ALL {
            let api = agent.service(Protocol::Tcp, family);
            maps.kept
                .put(
                    &api.service.id,
                    &Service {
                        generation: 1,
                        slots: 1,
                    },
                )
                .expect("kept");
            // The service port is gone, its slots are not.
            api.service.set(Service::default());
            let seen = counts(datapath, Counter::OwnKept, 1, || agent.as_own(|| api.ask()));
            assert_eq!(seen.expect("an answer"), api.backend, "{family:?}");
            counts(datapath, Counter::SocketHole, 1, || refused(|| api.ask()));

            maps.slots.delete(&api.service.slot(1, 0)).expect("the slot goes");
            let seen = counts(datapath, Counter::OwnPassed, 1, || agent.as_own(|| api.ask()));
            assert_eq!(seen.expect("an answer"), api.behind, "{family:?}");
            counts(datapath, Counter::SocketHole, 1, || refused(|| api.ask()));
            maps.kept.delete(&api.service.id).expect("not kept any more");
        }
    });
}

#[test]
fn a_port_that_a_service_does_not_have_is_refused_to_it_as_well() {
    isolated(|node| {
        let agent = Agent::start(node);
        for family in Family::ALL {
            let unknown = family.cluster_ip(81);
            put_address(&agent.datapath, unknown.ip(), address_flags::VIP);
            agent.as_own(|| refused(|| ask(Protocol::Tcp, family, unknown)));
        }
        assert_eq!(count(&agent.datapath, Counter::OwnPassed), 0);
    });
}

#[test]
fn what_it_keeps_counts_as_a_connection() {
    isolated(|node| {
        let agent = Agent::start(node);
        let api = agent.service(Protocol::Tcp, Family::V4);
        let kept = Service {
            generation: 1,
            slots: 1,
        };
        agent
            .datapath
            .maps()
            .kept
            .put(&api.service.id, &kept)
            .expect("kept");
        api.service.switch(2, &[]);
        agent.as_own(|| api.ask()).expect("an answer");
        let one = Traffic {
            connections: 1,
            ..Traffic::default()
        };
        assert_eq!(agent.datapath.maps().service_traffic.get(api.service.id), one);
    });
}
