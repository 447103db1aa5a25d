//! What can go wrong, and what to do about it.

use std::{fmt, io, path::PathBuf};

use crate::{Device, Hook, MapName, sys::netlink::errno};

/// A file system that the loader needs at a path it was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filesystem {
    /// `bpf`, where maps and links are pinned.
    Bpf,
    /// `cgroup2`, where programs are attached.
    Cgroup2,
}

impl Filesystem {
    /// The option that names its path.
    const fn option(self) -> &'static str {
        match self {
            Self::Bpf => "bpffs",
            Self::Cgroup2 => "cgroup",
        }
    }

    /// How to come by one.
    const fn remedy(self) -> &'static str {
        match self {
            Self::Bpf => "mount one with `mount -t bpf bpf /sys/fs/bpf`",
            Self::Cgroup2 => "`grep cgroup2 /proc/self/mountinfo` shows where one is mounted",
        }
    }
}

impl fmt::Display for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bpf => "bpf",
            Self::Cgroup2 => "cgroup2",
        })
    }
}

/// What a [`MapError`] was about to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Read one entry.
    Get,
    /// Insert or replace one.
    Put,
    /// Remove one.
    Delete,
    /// Read all.
    List,
    /// Wait for running programs.
    Barrier,
}

impl Operation {
    /// In lower case: `get`, `put`, `delete`, `list`, `barrier`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Barrier => "barrier",
        }
    }
}

/// An operation on a map that failed; the map is as it was.
#[derive(Debug, thiserror::Error)]
#[error("failed to {} in map {map}: {source}", operation.name())]
pub struct MapError {
    /// Which map.
    pub map: MapName,
    /// What was tried.
    pub operation: Operation,
    /// What the kernel said.
    pub source: io::Error,
}

impl MapError {
    /// Whether the map has no room for another entry: [`MapName::capacity`] entries are in it.
    pub fn is_full(&self) -> bool {
        self.operation == Operation::Put && self.source.raw_os_error() == Some(libc::E2BIG)
    }
}

/// Why programs and maps could not be loaded, attached, looked at or removed.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// The process may not do this.
    #[error(
        "missing {missing}: eBPF programs are attached and found by id only with CAP_SYS_ADMIN and CAP_NET_ADMIN; run as root or grant both"
    )]
    Privileges {
        /// The capabilities that are not there.
        missing: String,
    },
    /// A path that was given is on another file system.
    #[error("--{} {}: expected the root or a folder of a {expected} file system, found {found}; {}", expected.option(), path.display(), expected.remedy())]
    WrongFilesystem {
        /// The path.
        path: PathBuf,
        /// What it should be.
        expected: Filesystem,
        /// What it is.
        found: String,
    },
    /// Another process holds the datapath open.
    #[error("{} is in use by another agent; end it first (one agent per node writes these maps)", path.display())]
    Busy {
        /// The locked folder.
        path: PathBuf,
    },
    /// There is nothing pinned to be read.
    #[error("no maps of this version under {}: {why}; is an agent set up here, with this bpffs?", path.display())]
    NotPinned {
        /// Where they should be.
        path: PathBuf,
        /// What is missing, or how it differs.
        why: String,
    },
    /// A file or folder operation failed.
    #[error("failed to {what} {}: {source}", path.display())]
    Path {
        /// The verb.
        what: &'static str,
        /// Its object.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// bpf(2) failed.
    #[error("failed to {what}: {source}")]
    Kernel {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The embedded object could not be parsed, relocated, or its maps created.
    #[error("failed to load the embedded eBPF object: {0}")]
    Object(#[from] aya::EbpfError),
    /// The verifier or the kernel refused a program.
    #[error("failed to load program {program}: {source}")]
    Program {
        /// Its name in the object.
        program: &'static str,
        /// Why, with the verifier's log.
        source: Box<aya::programs::ProgramError>,
    },
    /// What the verifier says of a program is not understood.
    #[error(
        "failed to read what the verifier says of program {program}: expected its stack depth and the number of instructions processed, found\n{log}"
    )]
    Log {
        /// Its name in the object.
        program: &'static str,
        /// The end of what it says.
        log: String,
    },
    /// The embedded object is not what this loader was built for.
    #[error("the embedded eBPF object has no {what}; build it again: `cargo xtask ebpf build`")]
    Incomplete {
        /// What is missing.
        what: String,
    },
    /// Another program's attachment leaves no room for ours.
    #[error(
        "failed to attach {hook} to {cgroup}: {source}; attached there or above without ALLOW_MULTI: {others:?}"
    )]
    Occupied {
        /// The hook.
        hook: Hook,
        /// The cgroup.
        cgroup: String,
        /// Ids of the programs in the way.
        others: Vec<u32>,
        /// What the kernel said.
        source: io::Error,
    },
    /// A filter of egress has no place to hang at.
    #[error(
        "device {device} has the queueing discipline `ingress`, which has no place for programs at egress: let its owner use clsact and remove it with `tc qdisc del dev {} ingress`, or attach by TCX (Linux 6.6)",
        device.name
    )]
    NoEgress {
        /// The device.
        device: Device,
    },
    /// There is no such device in this network namespace.
    #[error("no network device {device} in this network namespace, which has {}", found.join(", "))]
    NoDevice {
        /// What was asked for.
        device: String,
        /// Names of those that are there.
        found: Vec<String>,
    },
    /// Packets of the device do not begin with an Ethernet header.
    #[error(
        "network device {device} is not served: expected one of Ethernet (hardware type 1), found type {hardware}; attach to the device that carries it, if that is one"
    )]
    NotEthernet {
        /// The device.
        device: Device,
        /// `ARPHRD_…` of `linux/if_arp.h`.
        hardware: u16,
    },
    /// An option is out of its bounds.
    #[error("{option}: expected {expected}, found {found}")]
    Option {
        /// Which.
        option: &'static str,
        /// What it may be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The kernel was built without something.
    #[error("this kernel can't {what} ({source}): expected one with {option}; run one that has it")]
    Unsupported {
        /// What is not possible.
        what: String,
        /// The kernel's option.
        option: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A map operation failed.
    #[error(transparent)]
    Map(#[from] MapError),
}

impl LoaderError {
    /// The number of the kernel's error in `errno.h`, of an operation of the kernel.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Path { source, .. } | Self::Kernel { source, .. } => errno(source),
            _ => None,
        }
    }

    /// For `map_err`: a file operation, as `open`.
    pub fn path(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Path { what, path, source }
    }

    /// For `map_err`: a request to the kernel, as `list links`.
    pub fn kernel(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Kernel { what, source }
    }
}
