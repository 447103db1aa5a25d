//! The errors of a wrong set-up.

use std::path::Path;

use lb_loader::{Datapath, Filesystem, LoaderError, Options, programs_attached};

use crate::support::{Node, isolated};

/// Opens with other paths, and asserts which one is named and what is said of it.
#[track_caller]
fn check_wrong(options: &Options, at: &Path, filesystem: Filesystem, said: &[&str]) {
    let error = match Datapath::open(options) {
        Err(error @ LoaderError::WrongFilesystem { .. }) => error,
        other => panic!("expected WrongFilesystem, got {other:?}"),
    };
    let text = error.to_string();
    for fragment in said {
        assert!(text.contains(fragment), "{fragment:?} in {text:?}");
    }
    assert!(
        matches!(error, LoaderError::WrongFilesystem { path, expected, .. } if path == at && expected == filesystem)
    );
}

#[test]
fn a_bpffs_that_is_none_is_named_with_what_it_is_and_what_to_do() {
    isolated(
        |Node {
             options: Options { cgroup, .. },
             ..
         }| {
            let proc = Path::new("/proc");
            check_wrong(
                &Options::new(proc, cgroup),
                proc,
                Filesystem::Bpf,
                &["--bpffs /proc", "bpf", "mount -t bpf"],
            );
        },
    );
}

#[test]
fn a_cgroup_that_is_none_is_named_with_what_it_is_and_what_to_do() {
    isolated(
        |Node {
             options: Options { bpffs, .. },
             ..
         }| {
            check_wrong(
                &Options::new(bpffs, bpffs),
                bpffs,
                Filesystem::Cgroup2,
                &["--cgroup", "found bpf", "mountinfo"],
            );
            match programs_attached(bpffs, lb_loader::Hook::Connect4, false) {
                Err(LoaderError::WrongFilesystem { .. }) => {}
                other => panic!("expected WrongFilesystem, got {other:?}"),
            }
        },
    );
}

#[test]
fn a_path_that_is_not_there_is_named() {
    isolated(
        |Node {
             options: Options { bpffs, .. },
             ..
         }| {
            let missing = bpffs.join("missing");
            match Datapath::open(&Options::new(bpffs, &missing)) {
                Err(error @ LoaderError::Path { .. }) => {
                    assert!(error.to_string().contains("missing"), "{error}");
                }
                other => panic!("expected Path, got {other:?}"),
            }
        },
    );
}

#[test]
fn a_process_without_the_capabilities_is_told_which() {
    isolated(|Node { options, .. }| {
        drop_capabilities();
        match Datapath::open(options) {
            Err(error @ LoaderError::Privileges { .. }) => {
                let text = error.to_string();
                assert!(text.contains("CAP_SYS_ADMIN and CAP_NET_ADMIN"), "{text}");
                assert!(text.contains("run as root"), "{text}");
            }
            other => panic!("expected Privileges, got {other:?}"),
        }
    });
}

/// Of this thread, which is the test's own process's.
fn drop_capabilities() {
    const VERSION_3: u32 = 0x2008_0522;
    #[repr(C)]
    struct Header {
        version: u32,
        thread: i32,
    }
    let header = Header {
        version: VERSION_3,
        thread: 0,
    };
    // Effective, permitted and inheritable, of 32 capabilities each, twice.
    let none = [0_u32; 6];
    // SAFETY: capset of version 3 reads a header and two triples.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    assert_eq!(result, 0, "capset: {}", std::io::Error::last_os_error());
}
