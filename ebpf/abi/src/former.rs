//! Names that maps had before: pins and maps that an earlier version of the agent has made still have them.

/// Former name, and name. Layout and meaning are the same, so that a set with former names is of this ABI version once its pins
/// are renamed. (What the kernel calls such a map stays.)
pub const FORMER_NAMES: [(&str, &str); 3] = [
    ("FLOWS", "CONNTRACK"),
    ("REVERSE", "SOCKET_REVNAT"),
    ("SOCKETS", "SOCKET_BACKEND"),
];
