//! The same entries in plain hash maps of this process, and one walk along them: what the kernel's maps, the
//! bookkeeping and the order of writes cost is seen beside it.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use lb_abi::{Backend, BackendId, Frontend, FrontendKey, SlotKey};
use reference_agent::maps::Contents;

/// How long it takes to put the contents of the maps into hash maps, and to go from each frontend to its backends.
pub(crate) fn walk(contents: &Contents) -> Duration {
    let begin = Instant::now();
    let frontends: HashMap<FrontendKey, Frontend> = contents.frontends.iter().copied().collect();
    let services: HashMap<u32, lb_abi::Service> = contents.services.iter().copied().collect();
    let slots: HashMap<SlotKey, BackendId> = contents.slots.iter().copied().collect();
    let backends: HashMap<BackendId, Backend> = contents.backends.iter().copied().collect();
    let mut found = 0;
    for frontend in frontends.values() {
        let service = services.get(&frontend.internal).copied().unwrap_or_default();
        for index in 0..service.slots {
            let key = SlotKey {
                service: frontend.internal,
                generation: service.generation,
                index,
            };
            let backend = slots.get(&key).and_then(|backend| backends.get(backend));
            found += usize::from(backend.is_some());
        }
    }
    std::hint::black_box(found);
    begin.elapsed()
}
