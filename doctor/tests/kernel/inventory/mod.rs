//! Everything that is attached, of any owner; what earlier loads have left, and how it ends.
//!
//! | module | decides |
//! |---|---|
//! | `left` | an earlier load, and how it is left |
//! | `cgroups` | socket programs at the node's cgroup, above, below, hidden |
//! | `dying` | socket programs at a cgroup that was removed, and lives on in its sockets |
//! | `recovery` | no connection is cut by an eviction, and a clean-up leaves nothing |
//! | `nodes` | several nodes of one kernel: whose is whose |
//! | `many` | a thousand cgroups, and what a look at them costs |
//! | `seen` | what is listed, in which order, with whom it belongs to and who holds it |

mod cgroups;
mod dying;
mod left;
mod many;
mod nodes;
mod recovery;
mod seen;

use doctor::{Found, Inventory, Place, Scope, inventory};
use lb_loader::Ownership;

use crate::support::Node;

/// What is listed for a node, without a datapath.
fn look(node: &Node) -> Inventory {
    let scope = Scope {
        cgroup: node.options.cgroup.clone(),
        bpffs: Some(node.options.bpffs.clone()),
        current: Vec::new(),
    };
    inventory(&scope).expect("the kernel says")
}

/// What is ours at the node, as the machine's list has it. Other tests, and labs, leave such things at cgroups of their own meanwhile.
pub(crate) fn ours(node: &Node) -> Vec<Found> {
    let mut found = look(node).attachments;
    found.retain(|found| {
        let elsewhere = matches!(&found.place, Place::Cgroup { path: Some(path), .. } if !path.starts_with(&node.options.cgroup));
        !elsewhere && matches!(found.ownership, Ownership::Earlier | Ownership::Current)
    });
    found
}

/// What is attached to the node's own cgroup.
fn at_own(node: &Node, inventory: &Inventory) -> Vec<Found> {
    let own = |found: &&Found| matches!(&found.place, Place::Cgroup { path: Some(path), .. } if *path == node.options.cgroup);
    inventory.attachments.iter().filter(own).cloned().collect()
}
