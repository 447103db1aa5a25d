//! The kernel that the tests run on.

use nix::sys::utsname::uname;

/// Version and patch level of the running kernel.
pub(crate) fn release() -> (u32, u32) {
    let name = uname().expect("the kernel has a name");
    let release = name.release().to_str().expect("a release in ASCII");
    let mut numbers = release.split(['.', '-']).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(version)), Some(Ok(level))) => (version, level),
        _ => panic!("a release without two numbers: {release}"),
    }
}

/// Whether it has TCX (Linux 6.6): links of programs to network devices.
pub(crate) fn has_tcx() -> bool {
    release() >= (6, 6)
}
