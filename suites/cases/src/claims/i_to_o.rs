//! Claims of areas I to O.
use super::{Area, Claim};

/// Local and cluster, inside and outside.
pub(super) const I_POLICIES: Area = Area {
    name: "I traffic policies and source address",
    about: "local and cluster, inside and outside",
    claims: &[
        Claim {
            id: "source-ip-clusterip",
            tier: "core",
            needs: "2n · any · none",
            text: "a backend sees the address of the client pod through a ClusterIP",
        },
        Claim {
            id: "itp-local",
            tier: "core",
            needs: "2n · any · none",
            text: "internal traffic policy Local leads to endpoints of the client's node alone, and nowhere if it has none",
        },
        Claim {
            id: "itp-local-leaves-external",
            tier: "core",
            needs: "2n · any · x",
            text: "the internal policy does not restrict traffic from outside, nor the external one that from inside",
        },
        Claim {
            id: "etp-local-source-kept",
            tier: "core (lb: extended:loadbalancer)",
            needs: "2n · any · x",
            text: "external traffic policy Local leads to endpoints of the node alone, and they see the client's own address",
        },
        Claim {
            id: "etp-local-no-endpoint-none",
            tier: "core",
            needs: "2n · any · x",
            text: "external traffic policy Local leads nowhere on a node without endpoints",
        },
        Claim {
            id: "etp-local-incluster",
            tier: "extended:loadbalancer; node-port half: core",
            needs: "3n · any · api",
            text: "clients inside the cluster reach a load balancer address whatever the external policy says",
        },
        Claim {
            id: "policy-flip-live",
            tier: "core",
            needs: "2n · any · api, x",
            text: "a changed policy takes effect for new connections and leaves established ones alone",
        },
    ],
};

/// Addresses from outside.
pub(super) const J_LOADBALANCER: Area = Area {
    name: "J load balancer, external IPs, source ranges, health check port",
    about: "addresses from outside",
    claims: &[
        Claim {
            id: "lb-vip-served",
            tier: "extended:loadbalancer",
            needs: "2n · any · api, x",
            text: "a load balancer address is served from outside by any node, and from pods and hosts of every node",
        },
        Claim {
            id: "lb-status-followed",
            tier: "extended:lb-ipmode",
            needs: "2n · any · api",
            text: "an address that leaves the status, or whose mode is Proxy, is not captured any more",
        },
        Claim {
            id: "lb-without-nodeports",
            tier: "extended:loadbalancer",
            needs: "1n · any · api, x",
            text: "a load balancer address is served where no node ports are allocated",
        },
        Claim {
            id: "lb-source-ranges",
            tier: "extended:source-ranges",
            needs: "1n · any · api, x",
            text: "source ranges let in exactly whom they name, also after they change or go",
        },
        Claim {
            id: "shared-frontend-ip",
            tier: "extended:loadbalancer",
            needs: "1n · any · api, x",
            text: "two Services on one address with different ports are served apart, and one can go without the other",
        },
        Claim {
            id: "external-ip-served",
            tier: "extended:external-ips",
            needs: "2n · any · api, x",
            text: "an external IP that no node owns is served from outside and from pods",
        },
        Claim {
            id: "hcnp-truth",
            tier: "extended:loadbalancer",
            needs: "2n · any · api, x",
            text: "the health check port says whether the node has ready endpoints, and closes when it is not wanted",
        },
        Claim {
            id: "lb-address-as-source",
            tier: "extended:loadbalancer",
            needs: "2n · any · api, x",
            text: "a client whose own address is a load balancer's or an external IP is served like anyone else",
        },
        Claim {
            id: "node-addresses-followed",
            tier: "extended:loadbalancer",
            needs: "2n · any · node, x",
            text: "node ports serve at an address that a node gets at runtime, on whichever device, and not at one that it loses",
        },
        Claim {
            id: "hcnp-agent-dead",
            tier: "extended:loadbalancer",
            needs: "2n · any · node",
            text: "the health check port of a node whose agent is stopped does not vouch for endpoints that have left",
        },
    ],
};

/// Clients that stay.
pub(super) const K_AFFINITY: Area = Area {
    name: "K session affinity",
    about: "clients that stay",
    claims: &[
        Claim {
            id: "affinity-sticks",
            tier: "core",
            needs: "2n · any · none",
            text: "with client affinity the connections of one client reach one backend, and spread again without it",
        },
        Claim {
            id: "affinity-expires",
            tier: "core",
            needs: "1n · any · none",
            text: "a client that was silent for longer than the timeout is not bound any more",
        },
        Claim {
            id: "affinity-backend-gone",
            tier: "core",
            needs: "1n · any · api",
            text: "a client whose backend left is bound to another, with no failure",
        },
    ],
};

/// Zones and nodes.
pub(super) const L_TOPOLOGY: Area = Area {
    name: "L topology",
    about: "zones and nodes",
    claims: &[
        Claim {
            id: "hints-zone",
            tier: "extended:topology-hints",
            needs: "2n · any · api",
            text: "where all ready endpoints have zone hints, those for the client's zone alone serve",
        },
        Claim {
            id: "hints-partial-ignored",
            tier: "extended:topology-hints",
            needs: "2n · any · api",
            text: "hints that are incomplete or do not name the client's zone are ignored",
        },
        Claim {
            id: "hints-unready-ignored",
            tier: "extended:topology-hints",
            needs: "2n · any · api",
            text: "hints of endpoints that are not ready do not count",
        },
        Claim {
            id: "hints-same-node",
            tier: "extended:prefer-same-node",
            needs: "2n · any · api",
            text: "endpoints hinted for the client's node serve while one is ready, then those of its zone, then all",
        },
    ],
};

/// Two families, other protocols, other proxies.
pub(super) const M_FAMILIES: Area = Area {
    name: "M families, SCTP, labels",
    about: "two families, other protocols, other proxies",
    claims: &[
        Claim {
            id: "dual-stack-both",
            tier: "extended:dual-stack",
            needs: "2n · ds · none",
            text: "a dual-stack Service is served in both families, and one can come and go without the other",
        },
        Claim {
            id: "dual-stack-families-apart",
            tier: "extended:dual-stack",
            needs: "1n · ds · api",
            text: "endpoints of one family serve that family alone, and emptying it touches neither the other nor another Service",
        },
        Claim {
            id: "sctp-served",
            tier: "extended:sctp",
            needs: "2n · any · none",
            text: "SCTP associations are served apart from TCP and UDP on the same port number",
        },
        Claim {
            id: "service-proxy-name-ignored",
            tier: "extended:service-proxy-name",
            needs: "1n · any · api",
            text: "a Service that is labelled for another proxy is left alone, and served once it is not",
        },
        Claim {
            id: "headless-not-proxied",
            tier: "core",
            needs: "2n · any · none",
            text: "traffic to pods' own addresses arrives unchanged, whatever Services they back",
        },
    ],
};

/// Agents without an API, and with much to do.
pub(super) const N_RESTART: Area = Area {
    name: "N restart, API outage, scale",
    about: "agents without an API, and with much to do",
    claims: &[
        Claim {
            id: "restart-no-new-failure",
            tier: "robustness",
            needs: "2n · any · node, x",
            text: "no new connection fails while an agent is killed and starts again",
        },
        Claim {
            id: "restart-established-kept",
            tier: "robustness",
            needs: "2n · any · node, x",
            text: "no connection is reset or stalls while an agent is killed and starts again, those in transit neither",
        },
        Claim {
            id: "restart-prunes-deleted",
            tier: "robustness",
            needs: "1n · any · node",
            text: "what was deleted while the agent was down is gone after its start, and what was added serves",
        },
        Claim {
            id: "bootstrap-services-apart",
            tier: "robustness",
            needs: "1n · any · node",
            text: "Services that are made while an agent starts never reach each other's backends",
        },
        Claim {
            id: "upgrade-and-back",
            tier: "extended:upgrade",
            needs: "2n · any · node",
            text: "an upgrade and its way back keep connections",
        },
        Claim {
            id: "api-outage-static",
            tier: "robustness",
            needs: "2n · any · node",
            text: "without an API Services go on serving as they were last known",
        },
        Claim {
            id: "relist-prunes-removals",
            tier: "robustness",
            needs: "2n · any · node",
            text: "an endpoint that was removed while the watch was cut is gone after the next list",
        },
        Claim {
            id: "watch-stalled",
            tier: "robustness",
            needs: "2n · any · node",
            text: "an agent whose watch fell silent without an error is exact again after it",
        },
        Claim {
            id: "scale-canary-latency",
            tier: "extended:scale",
            needs: "2n · any · api",
            text: "among thousands of Services a change takes effect within the limit",
        },
        Claim {
            id: "overflow-old-survive",
            tier: "robustness",
            needs: "1n · any · node",
            text: "more Services than fit do no harm to those that were there",
        },
        Claim {
            id: "write-failure-retried",
            tier: "robustness",
            needs: "1n · any · node",
            text: "writes to the kernel that failed are made good",
        },
        Claim {
            id: "state-wiped-recovers",
            tier: "robustness",
            needs: "1n · any · node",
            text: "Services are exact again after somebody removed the implementation's rules, entries or programs, or it says that it is not ready",
        },
        Claim {
            id: "atomic-endpoint-switch",
            tier: "robustness",
            needs: "1n · any · api",
            text: "replacing all endpoints at once fails no connection",
        },
    ],
};

/// Nothing left behind, nothing of others touched.
pub(super) const O_HYGIENE: Area = Area {
    name: "O hygiene",
    about: "nothing left behind, nothing of others touched",
    claims: &[
        Claim {
            id: "baseline-after-churn",
            tier: "hygiene",
            needs: "1n · any · node",
            text: "after many Services have come and gone as much is left as was there before",
        },
        Claim {
            id: "mode-switch-clean",
            tier: "hygiene",
            needs: "1n · any · node",
            text: "switching between datapath modes leaves nothing of the former one at work",
        },
        Claim {
            id: "foreign-rules-kept",
            tier: "hygiene",
            needs: "1n · any · node",
            text: "rules, sets and routes of others neither disturb the agent nor are changed by it",
        },
        Claim {
            id: "fresh-agent-equal",
            tier: "hygiene",
            needs: "1n · any · node",
            text: "an agent that starts from nothing programs what the one before had",
        },
    ],
};
