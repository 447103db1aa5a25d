//! A real kubectl against the lab's API server.
