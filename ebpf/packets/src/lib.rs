//! What the datapath's packet programs do, as tables: a sentence, maps, a packet in, a verdict, a packet out.
//!
//! | module | holds |
//! |---|---|
//! | `world` | [`World`](world::World): a node in a network namespace, where devices and routes are what they are |

pub mod build;
pub mod check;
pub mod fuzz;
pub mod maglev;
pub mod model;
pub mod rows;
pub mod stage;
pub mod table;
pub mod world;
