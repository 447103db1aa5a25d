//! Sources that no host can have.

use lb_abi::{Address, address_flags};

use crate::net::{Hook, traits::Node};

/// Whether a source is one that no host can have.
#[inline(always)]
pub(super) fn is_one<N: Node>(hook: Hook, node: N, source: Address) -> bool {
    let [first, ..] = source.words();
    let never = if source.is_v4() {
        let [high, ..] = source.last4();
        source == Address::UNSPECIFIED_V4
            || source == Address::v4([255; 4])
            || high & 0xf0 == 224
            || source.is_loopback()
    } else {
        let [high, ..] = first.to_ne_bytes();
        source == Address::UNSPECIFIED_V6 || high == 0xff || source.is_loopback()
    };
    never || matches!(hook, Hook::NodeIngress) && is_ours(node, source)
}

#[inline(always)]
fn is_ours<N: Node>(node: N, source: Address) -> bool {
    const OURS: u32 = address_flags::NODE | address_flags::VIP;
    matches!(node.address(&source), Some(flags) if flags & OURS != 0)
}
