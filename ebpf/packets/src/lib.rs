//! What the datapath's packet programs do, as tables: a sentence, maps, a packet in, a verdict, a packet out.
//!
//! ```text
//! DATAPATH.md ─┬─▶ rows ─▶ table::Row ───┬─▶ stage ─▶ lb_loader::Detached (BPF_PROG_TEST_RUN) ─▶ as in the row?
//!              │            ▲            │
//!              │          build          └─▶ model ─▶ as in the row?
//!              │                                ▲
//!              └─▶ model                        └──── fuzz: random maps and packets, on both
//! ```
//!
//! `tests/wire` plays rows on real devices, which show of packets what no test run does.
//!
//! Tables and model were written from the same document, neither from the programs nor from the other.
//!
//! | module | holds |
//! |---|---|
//! | `rows` | the tables: read them in the order of the document |
//! | `table` | [`Row`](table::Row): what a row is made of |
//! | `build` | packets, from scratch |
//! | `stage` | plays rows on the programs: as they are written, cut off at each byte, with each entry of the maps missing |
//! | `check` | whether a packet is whole, by a library that builds none |
//! | `maglev` | the Maglev hash, from the document's words |
//! | `test_node` | [`TestNode`](test_node::TestNode): a node in a network namespace, with its devices and routes |
//! | `cgroup` | a cgroup in which socket programs meet this process's sockets |
//! | `model` | the programs once more, in plain Rust |
//! | `fuzz` | differential fuzzing of programs and model |
//! | `calls` | the same for socket programs: calls of real sockets, and a model of what they may do |

pub mod build;
pub mod calls;
pub mod cgroup;
pub mod check;
pub mod fuzz;
pub mod maglev;
pub mod model;
pub mod rows;
pub mod stage;
pub mod table;
pub mod test_node;
