//! What the kernel's numbers are called: `enum bpf_prog_type`, `bpf_map_type`, `bpf_attach_type` of `linux/bpf.h`.

/// What can be attached to a cgroup, in the order of a socket's life: numbers and names.
pub(super) const CGROUP_HOOKS: [(u32, &str); 29] = [
    (2, "sock_create"),
    (8, "bind4"),
    (9, "bind6"),
    (12, "post_bind4"),
    (13, "post_bind6"),
    (10, "connect4"),
    (11, "connect6"),
    (49, "connect_unix"),
    (14, "sendmsg4"),
    (15, "sendmsg6"),
    (50, "sendmsg_unix"),
    (19, "recvmsg4"),
    (20, "recvmsg6"),
    (51, "recvmsg_unix"),
    (29, "getpeername4"),
    (30, "getpeername6"),
    (52, "getpeername_unix"),
    (31, "getsockname4"),
    (32, "getsockname6"),
    (53, "getsockname_unix"),
    (21, "getsockopt"),
    (22, "setsockopt"),
    (3, "sock_ops"),
    (0, "ingress"),
    (1, "egress"),
    (34, "sock_release"),
    (6, "device"),
    (18, "sysctl"),
    (43, "lsm"),
];

/// The name of an attach type.
pub(super) fn attach_type(number: u32) -> &'static str {
    /// Those that are no cgroup's.
    const OTHERS: [(u32, &str); 7] = [
        (36, "sk_lookup"),
        (17, "flow_dissector"),
        (37, "xdp"),
        (46, "tcx_ingress"),
        (47, "tcx_egress"),
        (54, "netkit_primary"),
        (55, "netkit_peer"),
    ];
    find(CGROUP_HOOKS.iter().chain(&OTHERS), number)
}

/// `BPF_PROG_TYPE_SCHED_CLS`.
pub(super) const SCHED_CLS: u32 = 3;
/// `BPF_PROG_TYPE_SCHED_ACT`.
pub(super) const SCHED_ACT: u32 = 4;
/// `BPF_PROG_TYPE_XDP`.
pub(super) const XDP: u32 = 6;
/// `BPF_PROG_TYPE_CGROUP_SOCK`.
pub(super) const CGROUP_SOCK: u32 = 9;
/// `BPF_PROG_TYPE_SOCK_OPS`.
pub(super) const SOCK_OPS: u32 = 13;
/// `BPF_PROG_TYPE_CGROUP_SOCK_ADDR`.
pub(super) const CGROUP_SOCK_ADDR: u32 = 18;
/// `BPF_PROG_TYPE_SK_LOOKUP`.
pub(super) const SK_LOOKUP: u32 = 30;

/// The name of a program type.
pub(super) fn program_type(number: u32) -> &'static str {
    const NAMES: [(u32, &str); 33] = [
        (0, "unspecified"),
        (1, "socket_filter"),
        (2, "kprobe"),
        (SCHED_CLS, "sched_cls"),
        (SCHED_ACT, "sched_act"),
        (5, "tracepoint"),
        (XDP, "xdp"),
        (7, "perf_event"),
        (8, "cgroup_skb"),
        (CGROUP_SOCK, "cgroup_sock"),
        (10, "lwt_in"),
        (11, "lwt_out"),
        (12, "lwt_xmit"),
        (SOCK_OPS, "sock_ops"),
        (14, "sk_skb"),
        (15, "cgroup_device"),
        (16, "sk_msg"),
        (17, "raw_tracepoint"),
        (CGROUP_SOCK_ADDR, "cgroup_sock_addr"),
        (19, "lwt_seg6local"),
        (20, "lirc_mode2"),
        (21, "sk_reuseport"),
        (22, "flow_dissector"),
        (23, "cgroup_sysctl"),
        (24, "raw_tracepoint_writable"),
        (25, "cgroup_sockopt"),
        (26, "tracing"),
        (27, "struct_ops"),
        (28, "ext"),
        (29, "lsm"),
        (SK_LOOKUP, "sk_lookup"),
        (31, "syscall"),
        (32, "netfilter"),
    ];
    find(&NAMES, number)
}

/// The name of a map type.
pub(super) fn map_type(number: u32) -> &'static str {
    const NAMES: [(u32, &str); 34] = [
        (0, "unspecified"),
        (1, "hash"),
        (2, "array"),
        (3, "prog_array"),
        (4, "perf_event_array"),
        (5, "percpu_hash"),
        (6, "percpu_array"),
        (7, "stack_trace"),
        (8, "cgroup_array"),
        (9, "lru_hash"),
        (10, "lru_percpu_hash"),
        (11, "lpm_trie"),
        (12, "array_of_maps"),
        (13, "hash_of_maps"),
        (14, "devmap"),
        (15, "sockmap"),
        (16, "cpumap"),
        (17, "xskmap"),
        (18, "sockhash"),
        (19, "cgroup_storage"),
        (20, "reuseport_sockarray"),
        (21, "percpu_cgroup_storage"),
        (22, "queue"),
        (23, "stack"),
        (24, "sk_storage"),
        (25, "devmap_hash"),
        (26, "struct_ops"),
        (27, "ringbuf"),
        (28, "inode_storage"),
        (29, "task_storage"),
        (30, "bloom_filter"),
        (31, "user_ringbuf"),
        (32, "cgrp_storage"),
        (33, "arena"),
    ];
    find(&NAMES, number)
}

fn find<'a>(names: impl IntoIterator<Item = &'a (u32, &'static str)>, number: u32) -> &'static str {
    names
        .into_iter()
        .find(|(known, _)| *known == number)
        .map_or("unknown", |(_, name)| name)
}
