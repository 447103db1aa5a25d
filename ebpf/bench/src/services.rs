//! Service ports without clients, so that those that are measured are a few among many.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lb_abi::{Address, Backend, Frontend, FrontendKey, Port, Service, SlotKey, TCP, address_flags};
use lb_loader::{MapError, Maps};

/// How many.
pub(crate) const MANY: u32 = 50_000;
/// Below it are the ids of service ports and backends that are asked for.
pub(crate) const FIRST_ID: u32 = 10_000;

const PORT: u16 = 80;

/// Puts this many service ports into the maps, each with an address and a backend of its own; IPv4 and IPv6 in turns.
pub(crate) fn fill(maps: &Maps, count: u32) -> Result<(), MapError> {
    for number in 0..count {
        let id = FIRST_ID + number;
        let [frontend, backend] = [0, 1].map(|which| address(number, which));
        let backend = Backend {
            address: backend,
            port: Port::new(PORT),
            protocol: TCP,
            flags: 0,
        };
        maps.backends.put(&id, &backend)?;
        maps.slots.put(
            &SlotKey {
                service: id,
                generation: 1,
                index: 0,
            },
            &id,
        )?;
        maps.services.put(
            &id,
            &Service {
                generation: 1,
                slots: 1,
            },
        )?;
        let key = FrontendKey {
            address: frontend,
            port: Port::new(PORT),
            protocol: TCP,
            pad: 0,
        };
        maps.frontends.put(
            &key,
            &Frontend {
                internal: id,
                external: id,
                ..Frontend::default()
            },
        )?;
        maps.addresses.put(&frontend, &address_flags::VIP)?;
    }
    Ok(())
}

/// An address that nothing else here has: of the frontend (0) or the backend (1).
fn address(number: u32, which: u32) -> Address {
    let low = number | (which << 20);
    let ip: IpAddr = if number.is_multiple_of(2) {
        Ipv4Addr::from_bits(u32::from_be_bytes([11, 0, 0, 0]) | low).into()
    } else {
        let network = Ipv6Addr::new(0xfd00, 0xbe9c, 0, 0, 0, 0, 0, 0).to_bits();
        Ipv6Addr::from_bits(network | u128::from(low)).into()
    };
    ip.into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_address_is_one_of_its_own() {
        let addresses: BTreeSet<Address> = (0..MANY)
            .flat_map(|number| [address(number, 0), address(number, 1)])
            .collect();
        assert_eq!(addresses.len(), 2 * MANY as usize);
    }

    #[test]
    fn ids_fit_into_the_maps() {
        const { assert!(FIRST_ID + MANY <= lb_abi::capacity::SERVICES) };
        const { assert!(FIRST_ID + MANY <= lb_abi::capacity::BACKENDS) };
        const { assert!(FIRST_ID + MANY <= lb_abi::capacity::FRONTENDS) };
    }
}
