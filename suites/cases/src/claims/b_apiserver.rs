//! Claims of area B default/kubernetes and the agent's own way to the API: the Service by which the agent reaches the API.
use super::{Area, Claim};

/// The Service by which the agent reaches the API.
pub(super) const B_APISERVER: Area = Area {
    name: "B default/kubernetes and the agent's own way to the API",
    about: "the Service by which the agent reaches the API",
    claims: &[
        Claim {
            id: "kubesvc-reachable",
            tier: "core",
            needs: "1n · any · none",
            text: "from pods and hosts of every node the address of `default/kubernetes` answers with an API server's certificate",
        },
        Claim {
            id: "kubesvc-empty-permitted",
            tier: "core",
            needs: "1n · any · api",
            text: "while the slice of `default/kubernetes` is empty, its address refuses or leads to the last API server known, and nowhere else",
        },
        Claim {
            id: "kubesvc-refill-all-nodes",
            tier: "core",
            needs: "2n · any · api",
            text: "once the emptied slice of `default/kubernetes` is refilled, pods of every node reach exactly what it lists, with no agent restarted",
        },
        Claim {
            id: "kubesvc-one-of-n-leaves",
            tier: "core",
            needs: "1n · any · api",
            text: "an API server that leaves the slice gets no new connection, and nobody connected to the others notices",
        },
        Claim {
            id: "kubesvc-shared-address-restart",
            tier: "core",
            needs: "2n · any · api",
            text: "when one of several API servers behind one address stops, a Service with the same backend never fails",
        },
        Claim {
            id: "agent-own-vip-clusterip",
            tier: "robustness",
            needs: "1n · any · node",
            text: "an agent that reaches the API by the ClusterIP of `default/kubernetes` finds its way back after the slice was emptied and refilled",
        },
        Claim {
            id: "agent-own-vip-loadbalancer",
            tier: "robustness",
            needs: "1n · any · node",
            text: "an agent that reaches the API by a load balancer address finds its way back, whichever of the Services on that backend was emptied",
        },
        Claim {
            id: "agent-own-vip-nodeport",
            tier: "robustness",
            needs: "1n · any · node",
            text: "an agent that reaches the API by a node port finds its way back after the Service behind it was emptied and refilled",
        },
        Claim {
            id: "agent-own-vip-slice-recreated",
            tier: "robustness",
            needs: "1n · any · node",
            text: "an agent finds its way back after the slice, or the Service, behind its own way to the API was deleted and made again",
        },
        Claim {
            id: "agent-start-while-vip-empty",
            tier: "robustness",
            needs: "1n · any · node",
            text: "an agent starts although the node's kernel still leads the address of its API server nowhere",
        },
        Claim {
            id: "agent-start-with-stale-vip",
            tier: "robustness",
            needs: "1n · any · node",
            text: "an agent starts although the node's kernel still leads the address of its API server to one that is gone",
        },
        Claim {
            id: "empty-refill-no-restart",
            tier: "core",
            needs: "2n · any · api",
            text: "a Service that is emptied and refilled serves its slice again, each time, on every node, with no restart",
        },
        Claim {
            id: "all-watches-cut",
            tier: "robustness",
            needs: "2n · any · node",
            text: "when every connection of every agent to the API is reset, no Service fails, and later changes take effect",
        },
    ],
};
