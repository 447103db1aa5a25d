//! What the packet tables alone don't show, on the kernel and on the model.
//!
//! | module | what is shown |
//! |---|---|
//! | `test_node` | the node of all tables can be made again and again |
//! | `judging` | rows with a wrong expectation do not hold |
//! | `many` | what takes more than one packet to be seen |
//! | `model` | every row of the tables, on the model |
//! | `processors` | two processors at once, on the same tuples and ports |
//! | `full` | CONNTRACK that is full: what goes, and what stays |
//! | `fuzz` | programs and model agree on cases by the ten thousand |

mod full;
#[cfg(test)]
mod fuzz;
mod judging;
mod many;
mod model;
mod processors;
mod test_node;
