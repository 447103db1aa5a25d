//! Programs and maps of other projects.

use std::{fs, io, path::Path};

use lb_abi::Meta;
use lb_loader::{CraftedKind, CraftedMap, HeldProgram, Hook, load_passing, put_pinned};

use super::Node;

/// A program of another project, with the name of ours: it lets everything pass.
pub(crate) struct ForeignProgram(pub(crate) HeldProgram);

impl ForeignProgram {
    /// A socket program that uses these maps, by id.
    pub(crate) fn load(hook: Hook, maps: &[u32]) -> Self {
        Self(load_passing(hook.name(), hook, maps, None).expect("a program that only passes is accepted"))
    }
}

/// Pins an array of this many values, as large as those of META, at a path, in place of what is pinned there.
pub(crate) fn pin_array(path: &Path, entries: u32) {
    let size = u32::try_from(size_of::<Meta>()).expect("16 bytes");
    let array = CraftedMap::create("array", CraftedKind::Array, (4, size), entries).expect("an array");
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            panic!("failed to unpin {}: {error}", path.display())
        }
        _ => array.pin(path).expect("pinned"),
    }
}

/// Writes META of the pinned set.
pub(crate) fn overwrite_meta(node: &Node, meta: &Meta) {
    let mut bytes = meta.magic.to_vec();
    bytes.extend(meta.abi.to_ne_bytes());
    bytes.extend(meta.pad.to_ne_bytes());
    put_pinned(&node.pins("maps/META"), &0_u32.to_ne_bytes(), &bytes).expect("META is written");
}
