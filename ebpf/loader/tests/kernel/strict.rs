//! What older kernels refuse, asked of this one.
//!
//! Before Linux 6.3 the verifier refused every read of stack that had not been written. Later ones still do for a
//! process without CAP_PERFMON, so that loading without it shows here what would fail there.

use std::{collections::BTreeSet, thread};

use aya::{
    EbpfLoader, include_bytes_aligned,
    programs::{Program, ProgramError},
};
use caps::{CapSet, Capability};
use lb_loader::{DeviceHook, Hook};

use crate::support::{isolated, release};

/// How verifiers end what they say of such a read.
const UNWRITTEN: &str = "read from stack";

#[test]
fn socket_programs_are_not_refused_for_reads_of_unwritten_stack() {
    if asks_something() {
        isolated(|_| are_not_refused_for_it(Hook::ALL.map(Hook::name).to_vec()));
    }
}

#[test]
fn packet_programs_are_not_refused_for_reads_of_unwritten_stack() {
    if asks_something() {
        isolated(|_| are_not_refused_for_it(DeviceHook::ALL.map(DeviceHook::name).to_vec()));
    }
}

#[test]
fn what_stops_a_verifier_is_what_it_says_before_its_figures() {
    let said = "connect4: … Verifier output: 0: R1=ctx()\n7: (79) r3 = *(u64 *)(r10 -8)\n\
                invalid read from stack off -8+0 size 8\nverification time 9 usec\nstack depth 64\n\
                processed 8 insns (limit 1000000) max_states_per_insn 0\n\n";
    assert_eq!(reason(said), "invalid read from stack off -8+0 size 8");
    assert!(said.contains(UNWRITTEN), "as 6.1 puts it");
}

/// Without CAP_PERFMON a verifier has more rules that it has for nobody else, of speculative execution, precision and helpers:
/// beyond what it refuses by one of these nothing is known, which is said.
fn are_not_refused_for_it(names: Vec<&'static str>) {
    let (refused, undecided): (Vec<_>, Vec<_>) = refused(names)
        .into_iter()
        .partition(|said| said.contains(UNWRITTEN));
    assert!(refused.is_empty(), "{}", refused.join("\n\n"));
    if !undecided.is_empty() {
        let reasons: BTreeSet<&str> = undecided.iter().map(|said| reason(said)).collect();
        let why = format!(
            "without CAP_PERFMON this verifier stops at what it refuses to nobody else: {}",
            Vec::from_iter(reasons).join("; ")
        );
        testing::skip(&testing::current(), &why);
    }
}

/// The last that a verifier says before its figures.
fn reason(said: &str) -> &str {
    const FIGURES: [&str; 3] = ["verification time", "stack depth", "processed "];
    let is_figure = |line: &str| line.is_empty() || FIGURES.iter().any(|figure| line.starts_with(figure));
    said.lines()
        .map(str::trim)
        .rfind(|line| !is_figure(line))
        .unwrap_or(said)
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
