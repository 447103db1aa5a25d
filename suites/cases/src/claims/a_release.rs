//! Claims of area A release isolation: one backend shared by two Services.
use super::{Area, Claim};

/// One backend shared by two Services.
pub(super) const A_RELEASE: Area = Area {
    name: "A release isolation",
    about: "one backend shared by two Services",
    claims: &[
        Claim {
            id: "release-prefix-empty-list",
            tier: "core",
            needs: "1n · any · api",
            text: "a Service keeps a shared backend when the slice of one whose name begins its own is patched to no endpoints, also after its own next change",
        },
        Claim {
            id: "release-prefix-null-slice",
            tier: "core",
            needs: "1n · any · api",
            text: "the same when that slice gets null endpoints and null ports, as kube-apiserver leaves `default/kubernetes` when its last lease goes",
        },
        Claim {
            id: "release-prefix-one-of-two",
            tier: "core",
            needs: "1n · any · api",
            text: "a Service keeps both of two shared backends when the one whose name begins its own drops one of them",
        },
        Claim {
            id: "release-prefix-object-deleted",
            tier: "core",
            needs: "1n · any · api",
            text: "a Service keeps a shared backend when the other's slice or the other Service itself is deleted, or when the backend moves to another slice there",
        },
        Claim {
            id: "release-prefix-condition",
            tier: "core",
            needs: "1n · any · api",
            text: "a Service serves a backend that its own slice lists as ready while another Service's slice takes the same backend through unready and terminating to removed",
        },
        Claim {
            id: "release-name-lattice",
            tier: "core",
            needs: "1n · any · api",
            text: "of several Services whose names begin each other, emptying any one leaves all others serving the shared backend",
        },
        Claim {
            id: "release-same-name-two-namespaces",
            tier: "core",
            needs: "1n · any · api",
            text: "a Service keeps its backend when one of the same name, with a slice of the same name, in another namespace is emptied and deleted",
        },
        Claim {
            id: "release-joined-key-collision",
            tier: "core",
            needs: "1n · any · api",
            text: "a Service keeps its backend when one is emptied whose namespace and name, written in one word, are its own or begin its own",
        },
        Claim {
            id: "release-port-scoped",
            tier: "core",
            needs: "1n · any · api",
            text: "letting go of an address by one port name, port number or protocol leaves it with whoever uses another",
        },
        Claim {
            id: "release-every-trigger",
            tier: "core",
            needs: "1n · any · api",
            text: "whatever is changed at a Service after another has let go of the shared backend, and if nothing is, it goes on serving it",
        },
        Claim {
            id: "release-all-frontends",
            tier: "core (np, lb: extended:loadbalancer)",
            needs: "2n · any · api, x",
            text: "after another Service has let go of the shared backend, ClusterIP, node port and load balancer address all serve it, from inside and outside",
        },
        Claim {
            id: "release-established-flows",
            tier: "core",
            needs: "2n · any · api",
            text: "connections and UDP sockets that talk to a Service see no reset, no other backend and next to no loss when another lets go of the shared backend",
        },
        Claim {
            id: "release-agent-restart-between",
            tier: "robustness",
            needs: "1n · any · node",
            text: "an agent that is restarted after another Service has let go of the shared backend, or is down while it does, does not lose it",
        },
        Claim {
            id: "release-culprit-refilled",
            tier: "core",
            needs: "1n · any · api",
            text: "a Service that is emptied and refilled serves its backends again with equal shares, and the one that shares them never fails",
        },
        Claim {
            id: "release-victim-slice-rewritten",
            tier: "core",
            needs: "1n · any · api",
            text: "a Service whose slice is deleted refuses, and serves again once a slice of another name lists the backend",
        },
    ],
};
