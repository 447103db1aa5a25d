//! Packets on real devices: a redirect is more than the number that a program returns, and what a device holds of a packet beside
//! its bytes (a checksum that is left to it, a tag, the host that the frame is for) no test run shows.
//!
//! | module | what is shown |
//! |---|---|
//! | `rows` | rows of the tables come out at the right device, with a whole checksum, also where that was left to the device |
//! | `beside` | frames for other hosts |
//! | `wire` | programs at the devices of a [`TestNode`](lb_packets::test_node::TestNode), and packet sockets at their other ends |
//!
//! The kernel keeps the first tag of every frame that comes in by a device beside the packet, so rows with tags are those of
//! tags that a device has taken off. The sum of a whole packet by its device (CHECKSUM_COMPLETE) is not shown: a
//! veth has none, behind a tunnel that does (vxlan) the stack sums up itself what does not fit, and logs that once in the
//! life of a machine.

#[cfg(test)]
mod beside;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod wire;
