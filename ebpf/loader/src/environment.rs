//! What must be so before anything is done: privileges, file systems, and no second agent.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use nix::{
    fcntl::{Flock, FlockArg},
    sys::statfs::{
        BPF_FS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, EXT4_SUPER_MAGIC, FsType,
        OVERLAYFS_SUPER_MAGIC, SYSFS_MAGIC, TMPFS_MAGIC, statfs,
    },
};

use crate::{Filesystem, LoaderError};

/// Checks for the capabilities without which the kernel refuses, later and with no reason.
///
/// CAP_SYS_ADMIN: programs, maps and links are opened by id only with it (`bpf_prog_get_fd_by_id` and its like).
/// CAP_NET_ADMIN: programs that change socket addresses are loaded only with it.
pub fn expect_privileges() -> Result<(), LoaderError> {
    const NEEDED: [(u32, &str); 2] = [(21, "CAP_SYS_ADMIN"), (12, "CAP_NET_ADMIN")];
    const STATUS: &str = "/proc/thread-self/status";
    let status = fs::read_to_string(STATUS).map_err(LoaderError::path("read", STATUS))?;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .ok_or_else(|| LoaderError::path("find CapEff in", STATUS)(io::ErrorKind::InvalidData.into()))?;
    let missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(bit, _)| effective & (1 << bit) == 0)
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(LoaderError::Privileges {
            missing: missing.join(" and "),
        })
    }
}

/// Checks what a path is on.
pub(crate) fn expect_filesystem(path: &Path, expected: Filesystem) -> Result<(), LoaderError> {
    let found = statfs(path)
        .map_err(|error| LoaderError::path("look at", path)(error.into()))?
        .filesystem_type();
    if found == magic(expected) {
        return Ok(());
    }
    let found = KNOWN.iter().find(|(number, _)| *number == found).map_or_else(
        || format!("a file system of type {:#x}", found.0),
        |(_, name)| (*name).to_owned(),
    );
    Err(LoaderError::WrongFilesystem {
        path: path.to_owned(),
        expected,
        found,
    })
}

const fn magic(filesystem: Filesystem) -> FsType {
    match filesystem {
        Filesystem::Bpf => BPF_FS_MAGIC,
        Filesystem::Cgroup2 => CGROUP2_SUPER_MAGIC,
    }
}

/// What people give by mistake. The number's type is not the same with every C library; nix's is.
const KNOWN: [(FsType, &str); 7] = [
    (BPF_FS_MAGIC, "bpf"),
    (CGROUP2_SUPER_MAGIC, "cgroup2"),
    (CGROUP_SUPER_MAGIC, "cgroup (v1)"),
    (TMPFS_MAGIC, "tmpfs"),
    (EXT4_SUPER_MAGIC, "ext4"),
    (OVERLAYFS_SUPER_MAGIC, "overlay"),
    (SYSFS_MAGIC, "sysfs"),
];

/// Takes the lock of a folder; it ends with the value, and with the process.
///
/// # Errors
/// [`LoaderError::Busy`] at once, if another process has it.
pub(crate) fn lock(folder: &Path) -> Result<Flock<File>, LoaderError> {
    /// Each attempt is lost only to a [`LockedPins::remove_all`](crate::LockedPins::remove_all) that removes the folder
    /// in that very moment.
    const ATTEMPTS: usize = 8;
    for _ in 0..ATTEMPTS {
        fs::create_dir_all(folder).map_err(LoaderError::path("create", folder))?;
        let opened = match File::open(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(LoaderError::path("open", folder))?,
        };
        let locked =
            Flock::lock(opened, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
                nix::Error::EWOULDBLOCK => LoaderError::Busy {
                    path: folder.to_owned(),
                },
                error => LoaderError::path("lock", folder)(error.into()),
            })?;
        let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let held = locked
            .metadata()
            .map(inode)
            .map_err(LoaderError::path("look at", folder))?;
        if fs::metadata(folder).map(inode).is_ok_and(|named| named == held) {
            return Ok(locked);
        }
    }
    Err(LoaderError::Busy {
        path: folder.to_owned(),
    })
}
