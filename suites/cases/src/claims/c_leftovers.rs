//! Claims of area C leftover programs and maps: what an earlier start has left in the kernel.
use super::{Area, Claim};

/// What an earlier start has left in the kernel.
pub(super) const C_LEFTOVERS: Area = Area {
    name: "C leftover programs and maps",
    about: "what an earlier start has left in the kernel",
    claims: &[
        Claim {
            id: "stale-sock-legacy-multi",
            tier: "robustness",
            needs: "1n · any · node",
            text: "connect programs of an earlier load that run before the agent's own do not send anybody to backends that are gone",
        },
        Claim {
            id: "stale-sock-link-orphan",
            tier: "robustness",
            needs: "1n · any · node",
            text: "the same when an unpinned link that somebody still holds keeps them attached",
        },
        Claim {
            id: "stale-sock-pins-hidden",
            tier: "robustness",
            needs: "1n · any · node",
            text: "the same when the agent can't see the pins of its earlier start",
        },
        Claim {
            id: "stale-sock-child-cgroup",
            tier: "robustness",
            needs: "1n · any · node",
            text: "the same when they are attached to a cgroup below the agent's",
        },
        Claim {
            id: "stale-sock-parent-cgroup",
            tier: "robustness",
            needs: "1n · any · node",
            text: "the same when they are attached above the agent's cgroup, where addresses of deleted Services show them",
        },
        Claim {
            id: "stale-sock-exclusive-attach",
            tier: "robustness",
            needs: "1n · any · node",
            text: "where an earlier program was attached so that no second one may be, the agent serves or says that it is not ready",
        },
        Claim {
            id: "stale-sock-dying-cgroup",
            tier: "robustness",
            needs: "1n · any · node",
            text: "links of an earlier start to a cgroup that is gone do not keep host processes from being served",
        },
        Claim {
            id: "stale-map-pin",
            tier: "robustness",
            needs: "1n · any · node",
            text: "pinned maps of an earlier run, of the same layout or another, bring back no deleted Service and no former backend",
        },
        Claim {
            id: "stale-map-name-collision",
            tier: "robustness",
            needs: "1n · any · node",
            text: "two maps whose names look the same to the kernel are not taken for each other",
        },
        Claim {
            id: "stale-sock-udp-sendmsg",
            tier: "robustness",
            needs: "1n · any · node",
            text: "sendmsg programs of an earlier load do not send datagrams to backends that are gone",
        },
        Claim {
            id: "stale-sock-reverse-hooks",
            tier: "robustness",
            needs: "1n · any · node",
            text: "recvmsg, getpeername and bind programs of an earlier load neither forge answers' addresses nor keep ports",
        },
        Claim {
            id: "stale-sock-disabled-by-config",
            tier: "robustness",
            needs: "1n · any · node",
            text: "after translation at sockets was switched off, nothing of it goes on translating",
        },
        Claim {
            id: "stale-tc-and-xdp",
            tier: "robustness",
            needs: "2n · any · node",
            text: "packet programs of an earlier run do not translate a second time, nor to backends that are gone",
        },
        Claim {
            id: "stale-no-reboot",
            tier: "robustness",
            needs: "1n · any · node",
            text: "none of these needs a reboot, a drained node or a hand: one restart of the agent at most",
        },
        Claim {
            id: "stale-restart-loop-no-growth",
            tier: "hygiene",
            needs: "1n · any · node",
            text: "ten restarts leave as many programs, links, maps and pins as one",
        },
        Claim {
            id: "foreign-programs-kept",
            tier: "hygiene",
            needs: "1n · any · node",
            text: "somebody else's programs stay attached and go on running through start, restart and removal",
        },
        Claim {
            id: "sock-preexisting-clients",
            tier: "core",
            needs: "1n · any · node",
            text: "processes and pods that ran before the agent's first start are served once it is ready",
        },
        Claim {
            id: "ready-means-served",
            tier: "robustness",
            needs: "1n · any · node",
            text: "an agent that says that it is ready serves, from host, pod and outside",
        },
        Claim {
            id: "uninstall-leaves-nothing",
            tier: "hygiene",
            needs: "1n · any · node",
            text: "after the documented removal nothing of the implementation is left, and no Service address is translated",
        },
    ],
};
