//! Loads, pins, adopts and attaches eBPF programs and maps, and reads what the kernel lists of those of every owner. The
//! only crate that calls bpf(2), and the only one that imports aya. What is made of such lists, and eviction, is the
//! doctor's (`doctor/`).
//!
//! ```text
//! plumbline.bpf.o ─▶ object ─▶ programs ─┐                 ┌─▶ hooks of the node's cgroup, by pinned links
//!  (embedded)          ▲                 ├─▶ Datapath ─────┼─▶ network devices, by pinned links of TCX or filters
//!           map::pins ─┴─▶ maps ─────────┘                 └─▶ Maps, Table: what the agent writes
//!           (adopted or new)
//! kernel ─▶ HeldProgram, HeldLink, RawMap, Cgroup, DeviceProgram ─▶ doctor
//!           (programs, links, maps, attachments of every owner)
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `datapath` | [`Datapath`]: open, attach, scan |
//! | `map` | [`Maps`] and their tables; the pinned set, adopted or replaced |
//! | `map_name` | [`MapName`]: which maps there are, and their layouts |
//! | `connections` | those that run through programs whose set of maps is pinned nowhere any more |
//! | `hook` | [`Hook`], [`Device`], [`Layer`]: where programs are attached |
//! | `attachment` | what is attached to a cgroup and whose it is |
//! | `cgroup` | [`Cgroup`]: by path or by id; what is attached to it, by any owner |
//! | `device` | network devices: our programs attached, and [`DeviceProgram`], those of any owner |
//! | `link` | [`HeldLink`]: links of any owner, by id |
//! | `program` | [`HeldProgram`]: programs of any owner, by id; [`Load`]: the load of ours that one is of |
//! | `raw_map` | [`RawMap`]: maps of any owner, by id, in bytes |
//! | `pinned` | [`pinned_load`], [`LockedPins`]: what is pinned, without a datapath |
//! | `uninspected` | [`Blind`]: what could not be looked at |
//! | `verify` | what the verifier says about each program |
//! | `udp` | [`terminate_udp`]: ends connected sockets whose backend is gone |
//! | `opening` | [`opening()`], [`terminate_opening`]: TCP connections whose SYN is not answered |
//! | `namespace` | [`namespaces()`]: the network namespaces of this machine |
//! | `detached` | [`Detached`]: programs and maps for tests and measurements, run on packets given to them or by a cgroup's sockets |
//! | `object` | the embedded object: programs loaded against a set of maps |
//! | `options` | [`Options`]: what is chosen where the datapath is opened |
//! | `node_config` | what follows from the options and the machine: CONFIG, sizes of maps |
//! | `features` | [`features()`]: what this kernel offers, tried out |
//! | `ipv6only` | where the kernel keeps IPV6_V6ONLY, for the programs |
//! | `environment` | file systems, privileges, the lock |
//! | `mounts` | what is mounted |
//! | `error` | [`LoaderError`], [`MapError`] |
//! | `testing` | behind a feature: maps and programs of other projects, and frames, for tests and faults |
//! | `sys` | bpf(2), netlink, handles of cgroups; uses no other module |
//!
//! # Invariants
//! - No map and no program is ever found, opened or told apart by its name. A program is ours if one of the maps it
//!   uses, by id, begins with [`MAGIC`](lb_abi::MAGIC).
//! - Only what a caller names by id or place is detached; loading and attaching detach nothing of another owner.
//! - What could not be looked at is reported ([`Blind`]), never left out in silence.
//! - Dropping a [`Datapath`], or ending the process in any way, leaves what is attached running.
#![expect(unsafe_code, reason = "bpf(2), and maps as memory")]

mod attachment;
mod cgroup;
mod connections;
mod datapath;
mod detached;
mod device;
mod environment;
mod error;
mod features;
mod hook;
mod ipv6only;
mod link;
mod map;
mod map_name;
mod mounts;
mod namespace;
mod node_config;
mod object;
mod opening;
mod options;
mod pinned;
mod program;
mod raw_map;
mod sys;
#[cfg(feature = "testing")]
mod testing;
mod udp;
mod uninspected;
mod verify;

#[cfg(feature = "testing")]
pub use self::testing::{
    CraftedHook, CraftedKind, CraftedMap, Geometry, Offload, PacketSocket, Wired, attach_xdp_link, empty_map,
    empty_map_by_id, fill_map_by_id, instruction, load_crafted, load_misleading, load_passing,
    load_tail_calling, put_pinned, zero_map_by_id,
};
pub use self::{
    attachment::{Attachment, Ownership, attach_legacy, attach_link, detach_legacy, programs_attached},
    cgroup::Cgroup,
    datapath::{Attached, Datapath, Replaced},
    detached::Detached,
    device::{
        AttachedDevice, DeviceAttachment, DeviceManner, DeviceProgram, attach_filter, attach_tcx,
        attach_tcx_link, attach_xdp, device_programs, remove_empty_clsact,
    },
    environment::expect_privileges,
    error::{Filesystem, LoaderError, MapError, Operation},
    features::{Feature, features},
    hook::{Device, DeviceHook, DeviceId, DeviceKind, Direction, Hook, Layer},
    link::{HeldLink, links, pin_link},
    map::{
        ConfigTable, Counts, Maps, PinnedMaps, Plain, ServiceTable, ServiceView, Table, TrafficTable,
        TrafficView, View, read_pinned,
    },
    map_name::MapName,
    mounts::mount_points,
    namespace::{Namespace, Namespaces, namespaces, processes},
    node_config::namespace_cookie,
    opening::{Opening, opening, terminate_opening},
    options::{DeviceMode, NodeOptions, Options},
    pinned::{LockedPins, PinnedLoad, open_pinned, pinned_load},
    program::{HeldProgram, Load, program_ids, retire},
    raw_map::{RawEntry, RawMap, describe_map, map_ids},
    sys::{
        cgroup::{ALLOW_MULTI, ALLOW_OVERRIDE, Attached as CgroupPrograms},
        clsact::XdpMode,
        link::{Link, Target as LinkTarget},
        map::{Description as MapInfo, Layout},
        test_run::{Input, Run},
    },
    udp::{Terminated, terminate_udp},
    uninspected::Blind,
    verify::{Refused, Verified, verify},
};
