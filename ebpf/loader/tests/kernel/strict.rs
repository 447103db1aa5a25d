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

use crate::support::{isolated, release};

#[test]
fn socket_programs_load_where_unwritten_stack_may_not_be_read() {
    if !asks_something() {
        return;
    }
    isolated(|_| {
        let refused = refused(Hook::ALL.map(Hook::name).to_vec());
        assert!(refused.is_empty(), "{}", refused.join("\n\n"));
    });
}

#[test]
fn packet_programs_are_not_refused_for_reads_of_unwritten_stack() {
    /// Of rules against speculative execution, which every verifier has for processes without CAP_PERFMON, and none for
    /// those with it: beyond the instruction nothing is known.
    const SPECULATION: &str = "prohibited for !root";
    if !asks_something() {
        return;
    }
    isolated(|_| {
        let (undecided, refused): (Vec<_>, Vec<_>) = refused(DeviceHook::ALL.map(DeviceHook::name).to_vec())
            .into_iter()
            .partition(|said| said.contains(SPECULATION));
        assert!(refused.is_empty(), "{}", refused.join("\n\n"));
        if let Some(undecided) = undecided.first() {
            let reason = undecided.lines().find(|line| line.contains(SPECULATION));
            let why = format!(
                "without CAP_PERFMON this verifier stops at what it refuses to nobody else: {}",
                reason.unwrap_or_default().trim()
            );
            testing::skip(&testing::current(), &why);
        }
    });
}

/// Whether this kernel's verifier is more lenient with root than older ones; says so where it is not.
fn asks_something() -> bool {
    if release() >= (6, 3) {
        return true;
    }
    let why = "this kernel's verifier refuses such reads to everybody: every other test shows it";
    testing::skip(&testing::current(), why);
    false
}

/// What is said of those of the programs that do not load without CAP_PERFMON.
fn refused(names: Vec<&'static str>) -> Vec<String> {
    // Capabilities are a thread's own.
    let loading = thread::spawn(move || {
        for capability in [Capability::CAP_PERFMON, Capability::CAP_SYS_ADMIN] {
            caps::drop(None, CapSet::Effective, capability).expect("capabilities can be dropped");
        }
        let object = include_bytes_aligned!("../../../prebuilt/plumbline.bpf.o");
        let mut object = EbpfLoader::new().load(object).expect("the object is loaded");
        let said = names.into_iter().filter_map(|name| {
            let program = object.program_mut(name).expect("every hook has its program");
            load(program).err().map(|error| format!("{name}: {error}"))
        });
        said.collect()
    });
    loading.join().expect("the object has the programs")
}

fn load(program: &mut Program) -> Result<(), ProgramError> {
    match program {
        Program::CgroupSockAddr(program) => program.load(),
        Program::CgroupSock(program) => program.load(),
        Program::SchedClassifier(program) => program.load(),
        other => panic!("no hook is of the kind of {other:?}"),
    }
}
