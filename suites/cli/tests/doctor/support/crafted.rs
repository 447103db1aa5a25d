//! Cilium's and Calico's maps by name and layout, and a small program that translates with Cilium's maps as Cilium
//! does.

use std::{net::SocketAddrV4, path::Path};

use lb_loader::{CraftedKind, CraftedMap, HeldProgram, Hook, load_crafted};

/// One load of Cilium: its maps, and a program at `connect4` that translates by them.
pub(crate) struct Cilium {
    pub(crate) services: CraftedMap,
    pub(crate) backends: CraftedMap,
    pub(crate) program: HeldProgram,
}

/// A `struct lb4_key`: TCP, scope outside.
fn key(service: SocketAddrV4, slot: u16) -> Vec<u8> {
    let mut key = service.ip().octets().to_vec();
    key.extend(service.port().to_be_bytes());
    key.extend(slot.to_ne_bytes());
    key.extend([6, 0, 0, 0]);
    key
}

/// A `struct lb4_service`.
fn value(backend: u32, count: u16) -> Vec<u8> {
    let mut value = backend.to_ne_bytes().to_vec();
    value.extend(count.to_ne_bytes());
    value.extend([0; 6]);
    value
}

impl Cilium {
    /// Loads the program without attaching it.
    pub(crate) fn load() -> Self {
        let map = |name, sizes| CraftedMap::create(name, CraftedKind::Hash, sizes, 64).unwrap();
        let services = map("cilium_lb4_services_v2", (12, 12));
        let backends = map("cilium_lb4_backends_v3", (4, 12));
        let instructions = translate(&services, &backends);
        let program = load_crafted("cil_sock4_connect", Hook::Connect4, &instructions).unwrap();
        Self {
            services,
            backends,
            program,
        }
    }

    /// A service with one backend, or none.
    pub(crate) fn service(&self, service: SocketAddrV4, backend: Option<SocketAddrV4>) {
        let id = u32::from(service.port());
        self.services
            .put(&key(service, 0), &value(0, backend.is_some().into()))
            .unwrap();
        if let Some(backend) = backend {
            self.services.put(&key(service, 1), &value(id, 0)).unwrap();
            let mut entry = backend.ip().octets().to_vec();
            entry.extend(backend.port().to_be_bytes());
            entry.extend([6, 0, 0, 0, 0, 0]);
            self.backends.put(&id.to_ne_bytes(), &entry).unwrap();
        }
    }

    /// Pins the maps as Cilium does.
    pub(crate) fn pin(&self, bpffs: &Path) {
        let folder = bpffs.join("tc/globals");
        std::fs::create_dir_all(&folder).unwrap();
        self.services.pin(&folder.join("cilium_lb4_services_v2")).unwrap();
        self.backends.pin(&folder.join("cilium_lb4_backends_v3")).unwrap();
    }
}

/// Encodes an instruction.
const fn op(code: u64, to: u64, from: u64, offset: i16, immediate: i32) -> u64 {
    code | to << 8
        | from << 12
        | (offset.cast_unsigned() as u64) << 16
        | (immediate.cast_unsigned() as u64) << 32
}

/// `connect4`: looks up the key from the context in slot 0, then slot 1, then the backend; writes address and port to
/// the context. Other destinations pass (1); a service without backends is refused (0).
fn translate(services: &CraftedMap, backends: &CraftedMap) -> Vec<u64> {
    const LOAD_32: u64 = 0x61;
    const LOAD_16: u64 = 0x69;
    const STORE_32: u64 = 0x63;
    const STORE_16: u64 = 0x6b;
    const STORE_16_NOW: u64 = 0x6a;
    const STORE_32_NOW: u64 = 0x62;
    const MOVE: u64 = 0xbf;
    const MOVE_NOW: u64 = 0xb7;
    const ADD_NOW: u64 = 0x07;
    const JUMP_IF_EQUAL: u64 = 0x15;
    const CALL: u64 = 0x85;
    const EXIT: u64 = 0x95;
    /// `bpf_map_lookup_elem`.
    const LOOKUP: i32 = 1;
    /// Offsets in `struct bpf_sock_addr`.
    const USER_IP4: i16 = 4;
    const USER_PORT: i16 = 24;
    /// Placeholders for jump targets, replaced below.
    const PASS: i16 = i16::MAX;
    const REFUSE: i16 = i16::MAX - 1;
    let lookup = |map: &CraftedMap, at: i32| {
        let mut code = map.load_into(1).to_vec();
        code.extend([
            op(MOVE, 2, 10, 0, 0),
            op(ADD_NOW, 2, 0, 0, at),
            op(CALL, 0, 0, 0, LOOKUP),
        ]);
        code
    };
    let mut code = vec![
        op(MOVE, 6, 1, 0, 0),
        op(LOAD_32, 2, 6, USER_IP4, 0),
        op(STORE_32, 10, 2, -12, 0),
        op(LOAD_32, 2, 6, USER_PORT, 0),
        op(STORE_16, 10, 2, -8, 0),
        op(STORE_16_NOW, 10, 0, -6, 0),
        // Protocol, scope and padding in little-endian order.
        op(STORE_32_NOW, 10, 0, -4, i32::from_le_bytes([6, 0, 0, 0])),
    ];
    code.extend(lookup(services, -12));
    code.extend([
        op(JUMP_IF_EQUAL, 0, 0, PASS, 0),
        op(LOAD_16, 1, 0, 4, 0),
        op(JUMP_IF_EQUAL, 1, 0, REFUSE, 0),
        op(STORE_16_NOW, 10, 0, -6, 1),
    ]);
    code.extend(lookup(services, -12));
    code.extend([
        op(JUMP_IF_EQUAL, 0, 0, REFUSE, 0),
        op(LOAD_32, 1, 0, 0, 0),
        op(STORE_32, 10, 1, -16, 0),
    ]);
    code.extend(lookup(backends, -16));
    code.extend([
        op(JUMP_IF_EQUAL, 0, 0, REFUSE, 0),
        op(LOAD_32, 1, 0, 0, 0),
        op(LOAD_16, 2, 0, 4, 0),
        op(STORE_32, 6, 1, USER_IP4, 0),
        op(STORE_32, 6, 2, USER_PORT, 0),
    ]);
    let pass = code.len();
    code.extend([op(MOVE_NOW, 0, 0, 0, 1), op(EXIT, 0, 0, 0, 0)]);
    let refuse = code.len();
    code.extend([op(MOVE_NOW, 0, 0, 0, 0), op(EXIT, 0, 0, 0, 0)]);
    for (at, instruction) in code.iter_mut().enumerate() {
        for (label, target) in [(PASS, pass), (REFUSE, refuse)] {
            if *instruction & !0xf00 == op(JUMP_IF_EQUAL, 0, 0, label, 0) {
                let offset = i16::try_from(target - at - 1).unwrap();
                *instruction = (*instruction & 0xfff) | op(0, 0, 0, offset, 0);
            }
        }
    }
    code
}

/// A program of Calico's that only returns, with maps in which this service has this backend.
pub(crate) fn calico(service: SocketAddrV4, backend: SocketAddrV4) -> (HeldProgram, [CraftedMap; 2]) {
    let frontends = CraftedMap::create("cali_v4_nat_fe3", CraftedKind::Trie, (16, 20), 64).unwrap();
    let backends = CraftedMap::create("cali_v4_nat_be", CraftedKind::Hash, (8, 8), 64).unwrap();
    // For all clients: address, port and protocol are matched, the client's address is not.
    let mut key = 56_u32.to_ne_bytes().to_vec();
    key.extend(service.ip().octets());
    key.extend(service.port().to_ne_bytes());
    key.extend([6, 0, 0, 0, 0, 0]);
    frontends
        .put(&key, &[1_u32, 1, 0, 0, 0].map(u32::to_ne_bytes).concat())
        .unwrap();
    let mut entry = backend.ip().octets().to_vec();
    entry.extend(backend.port().to_ne_bytes());
    entry.extend([0; 2]);
    backends
        .put(&[1_u32, 0].map(u32::to_ne_bytes).concat(), &entry)
        .unwrap();
    let mut code = frontends.load_into(1).to_vec();
    code.extend(backends.load_into(1));
    code.extend([op(0xb7, 0, 0, 0, 1), op(0x95, 0, 0, 0, 0)]);
    let program = load_crafted("calico_connect_v4", Hook::Connect4, &code).unwrap();
    (program, [frontends, backends])
}
