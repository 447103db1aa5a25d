//! The maps. Sizes and layouts are lb-abi's.

use aya_ebpf::{
    bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC},
    btf_maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, lpm_trie},
    helpers::generated::{bpf_get_prandom_u32, bpf_ktime_get_coarse_ns},
    macros::btf_map,
};
use lb_abi::{
    ABI_VERSION, Address, Affinity, AffinityKey, Backend, BackendId, COUNTERS as COUNTER_COUNT, Chosen,
    ChosenKey, Config, Counter, Flow, FragmentKey, Frontend, FrontendKey, Held, HeldKey, Meta, Ports,
    SERVICE_RANGES, Service, ServiceId, SlotKey, SocketRevnat, SocketRevnatKey, SourceKey, Traffic, Tuple,
    capacity,
};
use lb_flow::Tables;

use crate::atomic;

/// `BPF_MAP_TYPE_ARRAY` of which user space maps the memory.
const MMAPABLE: usize = BPF_F_MMAPABLE as usize;

// What the agent writes.
#[btf_map]
static FRONTENDS: HashMap<FrontendKey, Frontend, { capacity::FRONTENDS as usize }> = HashMap::new();
#[btf_map]
static ADDRESSES: HashMap<Address, u32, { capacity::ADDRESSES as usize }> = HashMap::new();
#[btf_map]
static SERVICES: Array<Service, { capacity::SERVICES as usize }, MMAPABLE> = Array::new();
#[btf_map]
static SLOTS: HashMap<SlotKey, BackendId, { capacity::SLOTS as usize }> = HashMap::new();
#[btf_map]
static BACKENDS: HashMap<BackendId, Backend, { capacity::BACKENDS as usize }> = HashMap::new();
/// The key is a [`SourceKey`], which the map's type here calls by another name.
#[btf_map]
static SOURCES: LpmTrie<[u32; 5], u32, { capacity::SOURCES as usize }, { BPF_F_NO_PREALLOC as usize }> =
    LpmTrie::new();
#[btf_map]
static KEPT: HashMap<ServiceId, Service, { capacity::KEPT as usize }> = HashMap::new();
#[btf_map]
static CONFIG: Array<Config, 1> = Array::new();
#[btf_map]
static META: Array<Meta, 1> = Array::new();

// What the socket programs write: of this size in the object; the loader resizes them.
#[btf_map]
pub static CHOSEN: LruHashMap<ChosenKey, Chosen, { capacity::SOCKETS_LEAST as usize }> = LruHashMap::new();
#[btf_map]
pub static SOCKET_REVNAT: LruHashMap<SocketRevnatKey, SocketRevnat, { capacity::SOCKETS_LEAST as usize }> =
    LruHashMap::new();
#[btf_map]
pub static SOCKET_BACKEND: LruHashMap<u64, Backend, { capacity::SOCKETS_LEAST as usize }> = LruHashMap::new();

// What the packet programs write.
#[btf_map]
pub static FRAGMENTS: LruHashMap<FragmentKey, Ports, { capacity::FRAGMENTS as usize }> = LruHashMap::new();
#[btf_map]
pub static HELD: LruHashMap<HeldKey, Held, { capacity::HELD as usize }> = LruHashMap::new();
/// Of this size in the object; the loader resizes it.
#[btf_map]
pub static CONNTRACK: LruHashMap<Tuple, Flow, { capacity::CONNTRACK_LEAST as usize }> = LruHashMap::new();

// What both write.
#[btf_map]
static AFFINITY: LruHashMap<AffinityKey, Affinity, { capacity::AFFINITY as usize }> = LruHashMap::new();
#[btf_map]
static COUNTERS: PerCpuArray<u64, { COUNTER_COUNT as usize }> = PerCpuArray::new();
#[btf_map]
static SERVICE_TRAFFIC: Array<Traffic, { capacity::SERVICES as usize }, MMAPABLE> = Array::new();
#[btf_map]
static BACKEND_TRAFFIC: Array<Traffic, { capacity::BACKENDS as usize }, MMAPABLE> = Array::new();

/// The maps, once they are known to be of this version.
#[derive(Clone, Copy)]
pub struct Maps(());

impl Maps {
    /// Every program starts here: by its use of META a later agent finds out whose it is.
    #[inline(always)]
    pub fn live() -> Option<Self> {
        match META.get(0) {
            Some(meta) if meta.abi == ABI_VERSION => Some(Self(())),
            _ => None,
        }
    }

    /// How the node is set up. The agent may write it while it is read: read each field once.
    #[inline(always)]
    pub fn config(self) -> Option<&'static Config> {
        CONFIG.get(0)
    }

    /// Looks up KEPT.
    #[inline(always)]
    pub fn kept(self, id: ServiceId) -> Option<Service> {
        // SAFETY: copied at once, and not recycled meanwhile (see below).
        unsafe { KEPT.get(id) }.copied()
    }

    /// Whether an address is in one of the ranges that cluster IPs are from.
    #[inline(always)]
    pub fn in_service_range(self, address: Address) -> bool {
        let Some(config) = self.config() else {
            return false;
        };
        const { assert!(SERVICE_RANGES == 4) };
        let [first, second, third, fourth] = &config.service_ranges;
        first.contains(address)
            || second.contains(address)
            || third.contains(address)
            || fourth.contains(address)
    }

    /// Whether SOURCES has a client of a service port.
    #[inline(always)]
    pub fn admits(self, client: &SourceKey) -> bool {
        const { assert!(size_of::<SourceKey>() == size_of::<lpm_trie::Key<[u32; 5]>>()) };
        // SAFETY: of the same size and the same fields, and of no greater alignment.
        let key = unsafe { &*(&raw const *client).cast::<lpm_trie::Key<[u32; 5]>>() };
        SOURCES.get(key).is_some()
    }
}

// Values are copied out of the maps at once. An element is not given to another key while a program that found it
// may still run: the agent waits for running programs between removing entries and inserting others.
impl Tables for Maps {
    #[inline(always)]
    fn address(&self, address: &Address) -> Option<u32> {
        // SAFETY: copied at once, and not recycled meanwhile (see above).
        unsafe { ADDRESSES.get(address) }.copied()
    }

    #[inline(always)]
    fn frontend(&self, key: &FrontendKey) -> Option<Frontend> {
        // SAFETY: copied at once, and not recycled meanwhile (see above).
        unsafe { FRONTENDS.get(key) }.copied()
    }

    #[inline(always)]
    fn service(&self, id: ServiceId) -> Option<Service> {
        let word = SERVICES.get_ptr(id)?.cast::<u64>();
        // SAFETY: the pointer is to eight bytes, eight-byte aligned, in an array, whose elements stay. Volatile: one
        // load of the whole, where two of the halves could see two writes.
        Some(Service::from_word(unsafe { word.read_volatile() }))
    }

    #[inline(always)]
    fn slot(&self, key: &SlotKey) -> Option<BackendId> {
        // SAFETY: copied at once, and not recycled meanwhile (see above).
        unsafe { SLOTS.get(key) }.copied()
    }

    #[inline(always)]
    fn backend(&self, id: BackendId) -> Option<Backend> {
        // SAFETY: copied at once, and not recycled meanwhile (see above).
        unsafe { BACKENDS.get(id) }.copied()
    }

    #[inline(always)]
    fn affinity(&self, key: &AffinityKey) -> Option<Affinity> {
        // SAFETY: copied at once. Only the kernel removes from this map, and only when it is full, the least recently
        // used elements first, which an element just looked up is not; should 65 536 others be written during this
        // copy, a client is sent to another backend of the same service port: a member of it is what the backend has
        // to be.
        unsafe { AFFINITY.get(key) }.copied()
    }

    #[inline(always)]
    fn keep_affinity(&self, key: &AffinityKey, value: &Affinity) {
        // Full of busy elements: the client is sent anywhere next time.
        let _ = AFFINITY.insert(key, value, 0);
    }

    #[inline(always)]
    fn random(&self) -> u32 {
        // SAFETY: no arguments, no conditions.
        unsafe { bpf_get_prandom_u32() }
    }

    #[inline(always)]
    fn now(&self) -> u32 {
        const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;
        // SAFETY: no arguments, no conditions. Coarse: as of the last tick, some milliseconds ago, at a fifth of the
        // cost. 2³² seconds are 136 years.
        (unsafe { bpf_ktime_get_coarse_ns() } / NANOSECONDS_PER_SECOND) as u32
    }
}

/// Adds one to a counter of this CPU.
///
/// Programs run in tasks, too: one that is preempted in here by another on its CPU may undo the other's addition. A
/// counter is then low by one, but never back at zero.
#[inline(always)]
pub fn count(counter: Counter) {
    if let Some(value) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: the pointer is to this CPU's element of an array, whose elements stay.
        unsafe { *value = (*value).wrapping_add(1) };
    }
}

/// Counts a connection that was opened, for its service port and its backend.
#[inline(always)]
pub fn count_connection(service: ServiceId, backend: BackendId) {
    if let Some(traffic) = SERVICE_TRAFFIC.get_ptr_mut(service) {
        // SAFETY: the pointer is to an element of an array, whose elements stay.
        unsafe { atomic::add(&raw mut (*traffic).connections, 1) };
    }
    if let Some(traffic) = BACKEND_TRAFFIC.get_ptr_mut(backend) {
        // SAFETY: as above.
        unsafe { atomic::add(&raw mut (*traffic).connections, 1) };
    }
}

/// Counts a packet that was translated, for its service port and its backend.
#[inline(always)]
pub fn count_packet(service: ServiceId, backend: BackendId, bytes: u32) {
    if let Some(traffic) = SERVICE_TRAFFIC.get_ptr_mut(service) {
        // SAFETY: the pointer is to an element of an array, whose elements stay.
        unsafe {
            atomic::add(&raw mut (*traffic).packets, 1);
            atomic::add(&raw mut (*traffic).bytes, u64::from(bytes));
        }
    }
    if let Some(traffic) = BACKEND_TRAFFIC.get_ptr_mut(backend) {
        // SAFETY: as above.
        unsafe {
            atomic::add(&raw mut (*traffic).packets, 1);
            atomic::add(&raw mut (*traffic).bytes, u64::from(bytes));
        }
    }
}
