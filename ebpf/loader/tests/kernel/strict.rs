//! What older kernels refuse, asked of this one.
//!
//! Before Linux 6.3 the verifier refused every read of stack that had not been written. Later ones still do for a
//! process without CAP_PERFMON, so that loading without it shows here what would fail there.

use std::thread;

use aya::{
    EbpfLoader, include_bytes_aligned,
    programs::{Program, ProgramError},
};
use caps::{CapSet, Capability};
use lb_loader::{DeviceHook, Hook};
use nix::sys::utsname::uname;

use crate::support::isolated;

#[test]
fn programs_load_where_unwritten_stack_may_not_be_read() {
    if release() < (6, 3) {
        let why = "this kernel's verifier refuses such reads to everybody: every other test shows it";
        return testing::skip(&testing::current(), why);
    }
    isolated(|_| {
        // Capabilities are a thread's own.
        let loading = thread::spawn(|| {
            for capability in [Capability::CAP_PERFMON, Capability::CAP_SYS_ADMIN] {
                caps::drop(None, CapSet::Effective, capability).expect("capabilities can be dropped");
            }
            let object = include_bytes_aligned!("../../../prebuilt/plumbline.bpf.o");
            let mut object = EbpfLoader::new().load(object).expect("the object is loaded");
            let sockets = Hook::ALL.map(Hook::name).into_iter();
            let refused: Vec<String> = sockets
                .chain(DeviceHook::ALL.map(DeviceHook::name))
                .filter_map(|name| {
                    let program = object.program_mut(name).expect("every hook has its program");
                    load(program).err().map(|error| format!("{name}: {error}"))
                })
                .collect();
            assert!(refused.is_empty(), "{}", refused.join("\n\n"));
        });
        assert!(loading.join().is_ok(), "a program was refused");
    });
}

fn load(program: &mut Program) -> Result<(), ProgramError> {
    match program {
        Program::CgroupSockAddr(program) => program.load(),
        Program::CgroupSock(program) => program.load(),
        Program::SchedClassifier(program) => program.load(),
        other => panic!("no hook is of the kind of {other:?}"),
    }
}

/// Version and patch level of the running kernel.
fn release() -> (u32, u32) {
    let name = uname().expect("the kernel has a name");
    let release = name.release().to_str().expect("a release in ASCII");
    let mut numbers = release.split(['.', '-']).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(version)), Some(Ok(level))) => (version, level),
        _ => panic!("a release without two numbers: {release}"),
    }
}
