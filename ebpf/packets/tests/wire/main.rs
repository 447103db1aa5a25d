//! Packets on real devices: a redirect is more than the number that a program returns, and what a device says of a packet beside
//! its bytes (a checksum that is left to it, a tag, for whom the frame is) no test run can say.
//!
//! | module | what is shown |
//! |---|---|
//! | `rows` | rows of the tables come out at the right device, with a whole checksum, also where that was left to the device |
//! | `beside` | tags beside the packet; frames for other hosts; checksums of all the packet |
//! | `wire` | programs at the devices of a [`World`](lb_packets::world::World), and packet sockets at their other ends |

#[cfg(test)]
mod beside;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod wire;
