//! The maps. Sizes and layouts are lb-abi's.

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    btf_maps::{Array, HashMap, LruHashMap, PerCpuArray},
    helpers::generated::bpf_get_prandom_u32,
    macros::btf_map,
};
use lb_abi::{
    ABI_VERSION, Backend, BackendId, COUNTERS as COUNTER_COUNT, Counter, Frontend, FrontendKey, Meta,
    ReverseKey, Service, ServiceId, SlotKey, capacity,
};
use lb_flow::Tables;

#[btf_map]
static FRONTENDS: HashMap<FrontendKey, Frontend, { capacity::FRONTENDS as usize }> = HashMap::new();
#[btf_map]
static SERVICES: Array<Service, { capacity::SERVICES as usize }, { BPF_F_MMAPABLE as usize }> = Array::new();
#[btf_map]
static SLOTS: HashMap<SlotKey, BackendId, { capacity::SLOTS as usize }> = HashMap::new();
#[btf_map]
static BACKENDS: HashMap<BackendId, Backend, { capacity::BACKENDS as usize }> = HashMap::new();
#[btf_map]
static REVERSE: LruHashMap<ReverseKey, FrontendKey, { capacity::REVERSE as usize }> = LruHashMap::new();
#[btf_map]
static META: Array<Meta, 1> = Array::new();
#[btf_map]
static COUNTERS: PerCpuArray<u64, { COUNTER_COUNT as usize }> = PerCpuArray::new();

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
}

// Values are copied out of the maps at once. An element is not given to another key while a program that found it
// may still run: the agent waits for running programs between removing entries and inserting others.
impl Tables for Maps {
    #[inline(always)]
    fn frontend(&self, destination: &FrontendKey) -> Option<Frontend> {
        // SAFETY: copied at once, and not recycled meanwhile (see above).
        unsafe { FRONTENDS.get(destination) }.copied()
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
    fn random(&self) -> u32 {
        // SAFETY: no arguments, no conditions.
        unsafe { bpf_get_prandom_u32() }
    }
}

/// Notes which frontend a socket's traffic with a backend belongs to.
#[inline(always)]
pub fn remember(key: &ReverseKey, frontend: &FrontendKey) -> Result<(), i32> {
    // A client that sends many datagrams would take a lock of the map for each.
    if remembered(key).as_ref() == Some(frontend) {
        return Ok(());
    }
    REVERSE.insert(key, frontend, 0)
}

/// The frontend that was noted, if it is not forgotten.
#[inline(always)]
pub fn remembered(key: &ReverseKey) -> Option<FrontendKey> {
    // SAFETY: copied at once. Only the kernel removes from this map, and only when it is full, the least recently used
    // elements first, which an element just looked up is not; should 65 536 other sockets be noted during this copy, a
    // peer is shown wrongly once.
    unsafe { REVERSE.get(key) }.copied()
}

/// Adds one to a counter of this CPU.
///
/// Programs run in tasks: one that is preempted in here by another on its CPU may undo the other's addition. A
/// counter is then low by one, but never back at zero.
#[inline(always)]
pub fn count(counter: Counter) {
    if let Some(value) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: the pointer is to this CPU's element of an array, whose elements stay.
        unsafe { *value = (*value).wrapping_add(1) };
    }
}
