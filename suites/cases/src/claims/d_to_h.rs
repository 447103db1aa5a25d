//! Claims of areas D to H.
use super::{Area, Claim};

/// Who is served, where from, by which address.
pub(super) const D_REACH: Area = Area {
    name: "D reaching a Service",
    about: "who is served, where from, by which address",
    claims: &[
        Claim {
            id: "clusterip-from-pod",
            tier: "core",
            needs: "2n · any · none",
            text: "pods of every node reach exactly the ready endpoints at their target ports by the ClusterIP",
        },
        Claim {
            id: "clusterip-from-host",
            tier: "core",
            needs: "2n · any · node",
            text: "host processes and pods with the host's network reach a Service by its ClusterIP, with or without a backend on their node",
        },
        Claim {
            id: "clusterip-hostnetwork-backend",
            tier: "core",
            needs: "2n · any · none",
            text: "a backend with the host's network is served by the ClusterIP from its own node and others",
        },
        Claim {
            id: "clusterip-hairpin",
            tier: "core",
            needs: "1n · any · none",
            text: "a pod that is a Service's only endpoint reaches itself by the ClusterIP",
        },
        Claim {
            id: "same-port-tcp-udp",
            tier: "core (lb: extended:mixed-protocol)",
            needs: "1n · any · api",
            text: "TCP and UDP on one port number of a Service lead to their own backends, and one can go without the other",
        },
        Claim {
            id: "v4-mapped-socket",
            tier: "core",
            needs: "1n · v4 · none",
            text: "an IPv6 socket that dials the IPv4-mapped ClusterIP is served like an IPv4 socket",
        },
        Claim {
            id: "spread-all-endpoints",
            tier: "core",
            needs: "2n · any · none",
            text: "new connections spread over all endpoints, each with between half and twice its fair share",
        },
        Claim {
            id: "nodeport-any-node",
            tier: "core",
            needs: "2n · any · x",
            text: "a node port is served on the InternalIP of every node, from outside, pods and hosts",
        },
        Claim {
            id: "frontends-not-crossed",
            tier: "core",
            needs: "1n · any · node, x",
            text: "node ports serve on node addresses alone and Service ports on Service addresses alone, and listeners of the host stay reachable",
        },
        Claim {
            id: "service-change-live",
            tier: "core",
            needs: "2n · any · none",
            text: "a changed port, target port or type takes effect, former frontends end, and unchanged ones never fail",
        },
        Claim {
            id: "service-deleted-vip-dead",
            tier: "core",
            needs: "1n · any · none",
            text: "no frontend of a deleted Service leads anywhere, and Services that share its backends never fail",
        },
        Claim {
            id: "clusterip-reused",
            tier: "core",
            needs: "2n · any · api",
            text: "a ClusterIP or a name that is used again leads to the new Service's backends alone",
        },
        Claim {
            id: "service-without-selector",
            tier: "core",
            needs: "1n · any · api",
            text: "a Service without a selector serves what its hand-written slices list, hosts outside the cluster too",
        },
        Claim {
            id: "own-connection-untouched",
            tier: "core",
            needs: "2n · any · x",
            text: "what a node's own process has opened from a port that is, or becomes, a node port is answered and goes on",
        },
        Claim {
            id: "frontend-moves-owner",
            tier: "core (lb, eip: extended:loadbalancer)",
            needs: "2n · any · api, x",
            text: "a frontend that passes from one Service to another takes new and unceasing clients along, within the limit",
        },
        Claim {
            id: "reply-from-frontend",
            tier: "core; getpeername: extended:peername",
            needs: "2n · any · none",
            text: "the answer to a datagram comes from exactly the address and port that it was sent to",
        },
    ],
};

/// No endpoints, closed ports, ICMP, size.
pub(super) const E_ABSENT: Area = Area {
    name: "E nothing there",
    about: "no endpoints, closed ports, ICMP, size",
    claims: &[
        Claim {
            id: "clusterip-no-endpoints-refused",
            tier: "core",
            needs: "1n · any · none",
            text: "a ClusterIP without usable endpoints refuses at once instead of letting clients wait",
        },
        Claim {
            id: "external-no-endpoints",
            tier: "core; extended:reject-external",
            needs: "1n · any · x",
            text: "node port and load balancer address of a Service without endpoints lead nowhere from outside",
        },
        Claim {
            id: "slice-empty-drops-to-zero",
            tier: "core",
            needs: "2n · any · api",
            text: "once the last endpoint leaves the slice or turns unready, no frontend leads to it, although it still listens",
        },
        Claim {
            id: "backend-port-closed-visible",
            tier: "core; UDP: extended:icmp-errors",
            needs: "2n · any · api",
            text: "a client learns at once that the port of a listed endpoint is closed",
        },
        Claim {
            id: "clusterip-closed-port",
            tier: "core",
            needs: "1n · any · node",
            text: "a port or protocol that a Service does not have leads nowhere on its ClusterIP",
        },
        Claim {
            id: "lb-closed-port-no-loop",
            tier: "extended:loadbalancer",
            needs: "1n · any · node, x",
            text: "packets from outside to a port that a load balancer address does not have do not go round",
        },
        Claim {
            id: "pmtu-toward-backend",
            tier: "extended:icmp-errors",
            needs: "2n · any · node",
            text: "a client behind a translated path learns that its packets are too big for a hop toward the backend",
        },
        Claim {
            id: "pmtu-toward-client",
            tier: "extended:icmp-errors",
            needs: "2n · any · node, x",
            text: "a backend learns that its packets are too big for a hop toward a client outside",
        },
        Claim {
            id: "udp-fragments",
            tier: "extended:fragments, extended:fragments-reordered",
            needs: "2n · any · node",
            text: "datagrams in fragments arrive whole both ways, by ClusterIP and node port",
        },
    ],
};

/// Slices, conditions, ports, labels.
pub(super) const F_SLICES: Area = Area {
    name: "F what an EndpointSlice means",
    about: "slices, conditions, ports, labels",
    claims: &[
        Claim {
            id: "slice-union",
            tier: "core",
            needs: "1n · any · api",
            text: "the endpoints of all slices of a Service are served together",
        },
        Claim {
            id: "slice-same-address-other-port",
            tier: "core",
            needs: "1n · any · api",
            text: "one address with different ports in two slices serves each Service port by its own",
        },
        Claim {
            id: "slice-duplicate-and-move",
            tier: "core",
            needs: "1n · any · api",
            text: "an endpoint in two slices is served until it has left both, and one that moves is never missed",
        },
        Claim {
            id: "slice-ghost-terminating",
            tier: "core",
            needs: "1n · any · api",
            text: "a ready endpoint is served although a terminating one of another pod has the same address",
        },
        Claim {
            id: "slice-ready-is-what-counts",
            tier: "core",
            needs: "1n · any · api",
            text: "conditions that are left out count as ready and not terminating, and ready decides",
        },
        Claim {
            id: "slice-namespace-bound",
            tier: "core",
            needs: "1n · any · api",
            text: "a slice of another namespace adds nothing to a Service",
        },
        Claim {
            id: "slice-labels-and-names",
            tier: "core",
            needs: "1n · any · api",
            text: "the service-name label alone binds a slice to its Service",
        },
        Claim {
            id: "slice-port-name-match",
            tier: "core",
            needs: "1n · any · api",
            text: "ports of slices are matched by name and protocol, never by number",
        },
        Claim {
            id: "slice-port-per-pod",
            tier: "core",
            needs: "1n · any · api",
            text: "endpoints whose named target port has different numbers are each dialled at their own",
        },
        Claim {
            id: "slice-odd-contents-ignored",
            tier: "core",
            needs: "1n · any · api",
            text: "slices of host names or without ports add nothing and disturb nothing",
        },
        Claim {
            id: "slice-relabelled",
            tier: "robustness",
            needs: "1n · any · api",
            text: "a slice whose label changes moves its endpoints from one Service to the other",
        },
        Claim {
            id: "churn-converges",
            tier: "core",
            needs: "2n · any · api",
            text: "after many changes at once every node serves exactly what the API says",
        },
    ],
};

/// Endpoints that come, go and drain.
pub(super) const G_DRAINING: Area = Area {
    name: "G readiness, termination, draining",
    about: "endpoints that come, go and drain",
    claims: &[
        Claim {
            id: "unready-no-new",
            tier: "core",
            needs: "2n · any · api",
            text: "an endpoint that is unready or removed gets no new connection, and none fails meanwhile",
        },
        Claim {
            id: "ready-flap-keeps-established",
            tier: "core",
            needs: "2n · any · api",
            text: "connections to an endpoint live through its turning unready and ready again",
        },
        Claim {
            id: "terminating-not-preferred",
            tier: "core",
            needs: "2n · any · api",
            text: "terminating endpoints get no new connection while a ready one is there",
        },
        Claim {
            id: "terminating-fallback",
            tier: "core",
            needs: "2n · any · api",
            text: "where all endpoints terminate, those that still serve are served",
        },
        Claim {
            id: "terminating-unserving-none",
            tier: "core",
            needs: "1n · any · api",
            text: "endpoints that terminate and do not serve get no new connection, even if they are all",
        },
        Claim {
            id: "terminating-drains-established",
            tier: "core",
            needs: "2n · any · api, x",
            text: "connections to a terminating endpoint go on until it leaves the slice",
        },
        Claim {
            id: "rollout-no-loss",
            tier: "robustness",
            needs: "2n · any · x",
            text: "rolling replacements whose pods wait before they end lose no connection",
        },
        Claim {
            id: "dead-node-excluded",
            tier: "robustness",
            needs: "3n · any · node",
            text: "endpoints of a node that lost power get no new connection once their slice says so",
        },
        Claim {
            id: "returning-endpoint-active",
            tier: "robustness",
            needs: "1n · any · node",
            text: "an endpoint that was terminating when the agent restarted serves again once it is ready",
        },
    ],
};

/// Flows that outlive their endpoints.
pub(super) const H_UDP: Area = Area {
    name: "H UDP and flow state",
    about: "flows that outlive their endpoints",
    claims: &[
        Claim {
            id: "udp-zero-and-back",
            tier: "core",
            needs: "2n · any · api, x",
            text: "a UDP flow reaches the new endpoint after its Service had none for a while",
        },
        Claim {
            id: "udp-deleted-no-misdelivery",
            tier: "core",
            needs: "2n · any · api",
            text: "datagrams to a deleted Service never reach the pod that has got its backend's address",
        },
        Claim {
            id: "udp-not-ready-yet",
            tier: "core",
            needs: "2n · any · api",
            text: "a UDP socket that sent before there was an endpoint is served once there is one",
        },
        Claim {
            id: "udp-backend-replaced",
            tier: "core",
            needs: "2n · any · api, x",
            text: "a UDP client with a fixed port reaches the backend that replaced its own",
        },
        Claim {
            id: "udp-connected-socket-released",
            tier: "core",
            needs: "1n · any · api",
            text: "a connected UDP socket whose backend left is served by another or told, never silently lost",
        },
        Claim {
            id: "udp-healthy-flow-kept",
            tier: "core; agent restart: robustness",
            needs: "2n · any · api",
            text: "changes that leave a UDP flow's backend serving do not move the flow",
        },
        Claim {
            id: "udp-reconnected-not-killed",
            tier: "robustness",
            needs: "1n · any · api",
            text: "a UDP socket that was connected elsewhere since is not touched when its former backend leaves",
        },
        Claim {
            id: "udp-socket-sticks",
            tier: "core",
            needs: "2n · any · none",
            text: "the datagrams of one unconnected UDP socket reach one backend, and those of many sockets more than one",
        },
        Claim {
            id: "pod-ip-reuse",
            tier: "core",
            needs: "2n · any · api",
            text: "a pod that gets another's address gets no connection meant for the former Service",
        },
    ],
};
