//! Where the stack would send a packet.

use lb_abi::Address;

/// The way to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// By a device, in pieces of at most so many bytes from the IP header on.
    Via {
        /// Bytes.
        mtu: u32,
    },
    /// There is none, or one that says so.
    None,
}

/// A routing table: prefixes with their length in bits of 16-byte addresses.
#[derive(Clone, Default, Debug)]
pub struct Routes(Vec<(Address, u32, Route)>);

impl Routes {
    /// Adds a prefix; `length` in bits of the address as it is written.
    #[must_use]
    pub fn with(mut self, prefix: Address, length: u32, route: Route) -> Self {
        let length = if prefix.is_v4() { 96 + length } else { length };
        self.0.push((prefix, length, route));
        self
    }

    /// By the longest prefix.
    pub fn to(&self, destination: Address) -> Route {
        let matching = self.0.iter().filter(|(prefix, length, _)| {
            prefix.is_v4() == destination.is_v4() && alike(*prefix, destination, *length)
        });
        matching
            .max_by_key(|(_, length, _)| *length)
            .map_or(Route::None, |(_, _, route)| *route)
    }
}

/// Whether the first bits are the same.
pub(super) fn alike(a: Address, b: Address, bits: u32) -> bool {
    let difference = u128::from_be_bytes(a.octets()) ^ u128::from_be_bytes(b.octets());
    difference.leading_zeros() >= bits
}
