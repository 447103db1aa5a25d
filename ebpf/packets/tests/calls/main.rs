//! The socket programs and their model agree; models that are wrong in one rule each are found out.
//!
//! | module | what is shown |
//! |---|---|
//! | `agree` | programs and model agree on cases by the hundred, on every counter that sockets can reach |
//! | `wrong` | models that are wrong in one rule each, every one of which is found |
//! | `support` | what they share |

#[cfg(test)]
mod agree;
#[cfg(test)]
mod support;
#[cfg(test)]
mod wrong;
