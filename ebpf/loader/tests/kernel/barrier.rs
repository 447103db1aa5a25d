//! The barrier waits for a program that is running.

use std::{
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    thread,
};

use aya::maps::{Array, MapData};

use crate::support::{
    bytecode::{self, immediate, offset},
    isolated,
};

/// What the slow program writes: 1 into the first word when it begins, 1 into the second when it ends.
type Progress = [u64; 64];

/// A program that takes milliseconds, and the map with its progress.
struct SlowProgram {
    program: OwnedFd,
    progress: Array<MapData, Progress>,
}

impl SlowProgram {
    fn load(path: &std::path::Path) -> Self {
        const SCHED_CLS: u32 = 3;
        const CSUM_DIFF: i32 = 28;
        /// Of 512 bytes each, some 50 ns: a few milliseconds; the verifier walks through every round, and stops at a
        /// million instructions.
        const ROUNDS: i32 = 50_000;
        let progress = Array::<MapData, Progress>::create(1, 0).expect("an array");
        progress.pin(path).expect("pinned");
        let map = MapData::from_pin(path).expect("opened");
        let instructions = [
            // r6 = the array's only value (BPF_PSEUDO_MAP_VALUE); two slots
            0x2618 | immediate(map.fd().as_fd().as_raw_fd()),
            0,
            // *(u64 *)(r6 + 0) = 1
            0x067a | immediate(1),
            // r7 = ROUNDS
            0x07b7 | immediate(ROUNDS),
            // r1 = r6, r2 = 512, r3 = 0, r4 = 0, r5 = 0; bpf_csum_diff
            0x61bf,
            0x02b7 | immediate(512),
            0x03b7,
            0x04b7,
            0x05b7,
            0x85 | immediate(CSUM_DIFF),
            // r7 -= 1; if r7 != 0 goto r1 = r6
            0x0707 | immediate(-1),
            0x0755 | offset(-8),
            // *(u64 *)(r6 + 8) = 1
            0x067a | offset(8) | immediate(1),
            // r0 = 0; exit
            0x00b7,
            0x95,
        ];
        let program =
            bytecode::load("slow", SCHED_CLS, 0, &instructions).expect("the slow program is accepted");
        Self {
            program,
            progress: Array::try_from(aya::maps::Map::Array(map)).expect("an array"),
        }
    }

    /// Runs it on another thread, and `then` as soon as it has begun: whether it had ended before `then`, and whether
    /// after.
    fn run_beside(&mut self, then: impl FnOnce()) -> (bool, bool) {
        self.progress.set(0, [0; 64], 0).expect("reset");
        let Self { program, progress } = self;
        let read = || progress.get(&0, 0).expect("read");
        thread::scope(|scope| {
            let running = scope.spawn(|| bytecode::run(program.as_fd()).expect("it runs"));
            while read()[0] == 0 && !running.is_finished() {
                std::hint::spin_loop();
            }
            let before = read()[1] == 1;
            then();
            (before, read()[1] == 1)
        })
    }
}

/// The program is caught in its middle in nearly every attempt; on a busy machine it may take a few.
const ATTEMPTS: usize = 1000;
/// Attempts that count: those that caught it.
const ENOUGH: usize = 20;

#[test]
fn the_barrier_returns_after_a_program_that_was_running() {
    isolated(|node| {
        let datapath = node.open();
        let mut slow = SlowProgram::load(&node.options.bpffs.join("progress"));
        let mut caught = 0;
        for _ in 0..ATTEMPTS {
            let (before, after) = slow.run_beside(|| datapath.barrier().expect("the barrier"));
            if !before {
                caught += 1;
                assert!(
                    after,
                    "the barrier returned while a program ran that had begun before it"
                );
            }
            if caught == ENOUGH {
                return;
            }
        }
        panic!("caught the program in its middle {caught} times in {ATTEMPTS}: this machine shows nothing");
    });
}

#[test]
fn an_ordinary_update_does_not_wait() {
    isolated(|node| {
        // What makes the test above worth something: without the barrier, the program is seen to run on.
        let datapath = node.open();
        let mut slow = SlowProgram::load(&node.options.bpffs.join("progress"));
        let put = || {
            datapath.maps().slots.put(
                &lb_abi::SlotKey {
                    service: 1,
                    generation: 1,
                    index: 0,
                },
                &1,
            )
        };
        let ran_on = (0..ATTEMPTS).any(|_| slow.run_beside(|| put().expect("a slot")) == (false, false));
        assert!(
            ran_on,
            "in {ATTEMPTS} attempts every update returned after the program"
        );
    });
}
