//! Loads, attaches, adopts and finds eBPF programs and maps. The only crate that calls bpf(2), and the only one
//! that imports aya.
//!
//! ```text
//! plumbline.bpf.o ─▶ object ─▶ programs ─┐                 ┌─▶ hooks of the node's cgroup, by pinned links
//!  (embedded)          ▲                 ├─▶ Datapath ─────┼─▶ network devices, by pinned links of TCX or filters
//!           map::pins ─┴─▶ maps ─────────┘    │            └─▶ Maps, Table: what the agent writes
//!           (adopted or new)                  └─▶ leftovers ─┐
//!                                                            ├─▶ evict, disarm
//! cgroups, devices, links, programs of the machine ─▶ inventory ┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `datapath` | [`Datapath`]: open, attach, scan |
//! | `map` | [`Maps`] and their tables; the pinned set, adopted or replaced |
//! | `connections` | those that run through programs whose set of maps is pinned nowhere any more |
//! | `attachment` | what is attached to a cgroup and whose it is |
//! | `blind` | [`Blind`]: what could not be looked at |
//! | `cleanup` | [`cleanup()`]: takes everything of this node away |
//! | `inventory` | [`inventory()`]: everything that is attached anywhere, of any owner; [`evict`] |
//! | `leftovers` | what earlier loads have left running for this node: [`Datapath::leftovers`] |
//! | `device` | network devices: attached to, looked at, detached from |
//! | `verify` | what the verifier says about each program |
//! | `program` | [`HeldProgram`]: anybody's program, by id |
//! | `raw_map` | [`RawMap`]: anybody's map, by id, in bytes |
//! | `udp` | [`terminate_udp`]: ends connected sockets whose backend is gone |
//! | `namespace` | [`namespaces()`]: the network namespaces of this machine |
//! | `detached` | [`Detached`]: programs and maps for tests and measurements, run on packets given to them or by a cgroup's sockets |
//! | `object` | the embedded object: programs loaded against a set of maps |
//! | `options` | [`Options`]: what whoever runs the datapath decides |
//! | `node` | what follows from the options and the machine: CONFIG, sizes of maps |
//! | `features` | [`features()`]: what this kernel offers, tried out |
//! | `ipv6only` | where the kernel keeps IPV6_V6ONLY, for the programs |
//! | `environment` | file systems, privileges, the lock |
//! | `mounts` | what is mounted |
//! | `sys` | bpf(2), netlink, handles of cgroups; uses no other module |
//!
//! # Invariants
//! - No map and no program is ever found, opened or told apart by its name. A program is ours if one of the maps it
//!   uses, by id, begins with [`MAGIC`](lb_abi::MAGIC).
//! - Somebody else's program, or another node's, is never detached without being told to.
//! - What could not be looked at is said ([`Blind`]), never left out in silence.
//! - Dropping a [`Datapath`], or ending the process in any way, leaves what is attached running.
#![expect(unsafe_code, reason = "bpf(2), and maps as memory")]

mod attachment;
mod blind;
mod cgroup;
mod cleanup;
mod connections;
mod datapath;
mod detached;
mod device;
mod environment;
mod error;
mod features;
mod hook;
mod inventory;
mod ipv6only;
mod leftovers;
mod map;
mod mounts;
mod namespace;
mod node;
mod object;
mod options;
mod program;
mod raw_map;
mod sys;
#[cfg(feature = "testing")]
mod testing;
mod udp;
mod verify;

#[cfg(feature = "testing")]
pub use self::testing::{
    CraftedHook, CraftedKind, CraftedMap, Geometry, Offload, PacketSocket, Wired, empty_map, instruction,
    load_crafted, load_misleading, load_passing, load_tail_calling,
};
pub use self::{
    attachment::{
        Attachment, Ownership, attach_legacy, attach_link, detach_legacy, pin_link, programs_attached,
    },
    blind::Blind,
    cleanup::{Cleanup, cleanup},
    datapath::{Attached, Datapath, Replaced},
    detached::Detached,
    device::{
        AttachedDevice, Device, DeviceAttachment, DeviceId, DeviceKind, DeviceManner, DeviceMode, Direction,
        attach_filter, attach_tcx, attach_tcx_link, attach_xdp,
    },
    error::{Filesystem, LoaderError, MapError, Operation},
    features::{Feature, features},
    hook::{DeviceHook, Hook},
    inventory::{
        CgroupState, Evicted, Found, Holder, Inventory, Layer, LooseProgram, Manner, MapDescription, Place,
        ProgArray, ProgramDescription, Scope, disarm, effective, evict, inventory, programs_of_this_node,
    },
    map::{
        ConfigTable, Counts, MapName, Maps, PinnedMaps, Plain, ServiceTable, ServiceView, Table,
        TrafficTable, TrafficView, View, read_pinned,
    },
    mounts::mount_points,
    namespace::{Namespace, Namespaces, namespaces},
    node::namespace_cookie,
    options::{NodeOptions, Options},
    program::HeldProgram,
    raw_map::{RawEntry, RawMap},
    sys::{
        filter::XdpMode,
        map::Layout,
        test_run::{Input, Run},
    },
    udp::{Terminated, terminate_udp},
    verify::{Refused, Verified, verify},
};
