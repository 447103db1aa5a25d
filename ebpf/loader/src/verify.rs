//! What the verifier of this kernel says about each program.
//!
//! aya asks for the verifier's log only when a program is refused, and the log is the only place where the kernel
//! tells the depth of the stack. So each program is loaded twice: as always, which decides; and once more by bpf(2)
//! with the log, from the same instructions and against the same maps.

use std::{
    collections::{BTreeSet, HashSet},
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
};

use aya::programs::ProgramError;
use aya_obj::{Object, ProgramSection, generated::bpf_insn};
use lb_abi::capacity;

use crate::{
    DeviceHook, HeldProgram, Hook, LoaderError, environment, object,
    sys::program::{self, Kind, Types},
};

/// A program that the verifier has accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    /// Its name in the object.
    pub program: &'static str,
    /// How many instructions it has.
    pub instructions: usize,
    /// How many the verifier has walked through: with those of each way through the program, as far as ways differ.
    /// It gives up at a million.
    pub processed: u32,
    /// Bytes of stack of the program and of each function that was not inlined; of those that are called from each other at most
    /// `MOST_STACK` together.
    pub stack: Vec<u32>,
}

/// A program that it has refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("program {program} was refused: {reason}\n{log}")]
pub struct Refused {
    /// Its name in the object.
    pub program: &'static str,
    /// What the kernel said.
    pub reason: String,
    /// The end of the verifier's log.
    pub log: String,
}

/// Bytes of stack that functions have together that are called from each other (`MAX_BPF_STACK` of `linux/filter.h`).
const MOST_STACK: u32 = 512;
/// A function's stack counts as a multiple of this, in kernels such as 6.1; later ones round to 16 where programs are compiled.
const STACK_UNIT: u32 = 32;

/// Lines of a log that say why a program was refused, with what led there.
const LOG_LINES: usize = 40;

/// Loads every program of the embedded object, in the order of [`Hook::ALL`] and [`DeviceHook::ALL`], and says what
/// the verifier said; leaves nothing loaded.
///
/// # Errors
/// Where nothing can be said of any program: privileges, or an object that is none.
pub fn verify() -> Result<Vec<Result<Verified, Refused>>, LoaderError> {
    environment::expect_privileges()?;
    let mut loaded = object::open(None, capacity::CONNTRACK_LEAST)?;
    let again = Again::new(&loaded)?;
    let names = Hook::ALL.map(Hook::name).into_iter();
    names
        .chain(DeviceHook::ALL.map(DeviceHook::name))
        .map(|name| match object::program(&mut loaded, name) {
            Ok(program) => again.load(name, &program),
            Err(LoaderError::Program { program, source }) => Ok(Err(refused(program, &source))),
            Err(error) => Err(error),
        })
        .collect()
}

/// The object once more, with its instructions relocated against maps that are there.
struct Again {
    object: Object,
    /// By which the verifier knows the functions that it looks at apart from their callers.
    types: Option<OwnedFd>,
}

impl Again {
    fn new(loaded: &aya::Ebpf) -> Result<Self, LoaderError> {
        let mut object = Object::parse(object::OBJECT).map_err(aya::EbpfError::from)?;
        let types = match aya::features().btf() {
            Some(features) => object
                .fixup_and_sanitize_btf(features)
                .map_err(aya::EbpfError::from)?
                .map(|types| program::load_types(&types.to_bytes()))
                .transpose()
                .map_err(LoaderError::kernel("load the object's types"))?,
            None => None,
        };
        let mut maps = Vec::new();
        for (name, map) in object.maps.drain() {
            let fd = object::data(loaded, &name)?.fd().as_fd().as_raw_fd();
            maps.push((name, fd, map));
        }
        let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        let maps = maps.iter().map(|(name, fd, map)| (name.as_str(), *fd, map));
        object.relocate_maps(maps, &text).map_err(aya::EbpfError::from)?;
        object.relocate_calls(&text).map_err(aya::EbpfError::from)?;
        Ok(Self { object, types })
    }

    /// Loads a program that was accepted once more, and reads the log. It counts as refused if an older kernel would refuse it for its
    /// stack.
    fn load(
        &self,
        name: &'static str,
        accepted: &HeldProgram,
    ) -> Result<Result<Verified, Refused>, LoaderError> {
        let incomplete = || LoaderError::Incomplete {
            what: format!("program {name}"),
        };
        let program = self.object.programs.get(name).ok_or_else(incomplete)?;
        let kind = match program.section {
            ProgramSection::CgroupSockAddr { .. } => Kind::SocketAddress,
            ProgramSection::CgroupSock { .. } => Kind::Socket,
            ProgramSection::SchedClassifier => Kind::Packet,
            _ => return Err(incomplete()),
        };
        let attach_type = Hook::ALL
            .into_iter()
            .find(|hook| hook.name() == name)
            .map_or(0, Hook::attach_type);
        let function = self
            .object
            .functions
            .get(&program.function_key())
            .ok_or_else(incomplete)?;
        let instructions: Vec<[u8; 8]> = function.instructions.iter().map(bytes).collect();
        let functions = function.func_info.func_info_bytes();
        let types = self.types.as_ref().map(|types| Types {
            types: types.as_fd(),
            functions: &functions,
            record: function.func_info_rec_size,
        });
        let log = program::log(kind, attach_type, &instructions, types).map_err(LoaderError::kernel(
            format!("load {name} with the verifier's log"),
        ))?;
        let (processed, stack) = figures(&log).ok_or_else(|| LoaderError::Log {
            program: name,
            log: tail(&log),
        })?;
        if let Some(counted) = accepted.processed()
            && counted != processed
        {
            return Err(LoaderError::Log {
                program: name,
                log: format!(
                    "{counted} instructions when it was loaded first; then:\n{}",
                    tail(&log)
                ),
            });
        }
        // The egress programs lack functions of the ingress ones, and have no others.
        if let Some(deepest) = deepest(&instructions, &stack)
            && deepest > MOST_STACK
        {
            return Ok(Err(Refused {
                program: name,
                reason: format!(
                    "its calls need {deepest} bytes of stack at once where each function has a multiple of {STACK_UNIT}, as in \
                     Linux 6.1; at most {MOST_STACK} are there"
                ),
                log: tail(&log),
            }));
        }
        Ok(Ok(Verified {
            program: name,
            instructions: instructions.len(),
            processed,
            stack,
        }))
    }
}

/// Bytes of stack of the functions that are called from each other and need most, each in whole [`STACK_UNIT`]s. `stack`: of each
/// function, in their order; `None` if the verifier has removed some that are called on no way, so that which are left is not known.
fn deepest(instructions: &[[u8; 8]], stack: &[u32]) -> Option<u32> {
    /// `BPF_JMP | BPF_CALL`, and `BPF_PSEUDO_CALL` as the source register.
    const CALL: (u8, u8) = (0x85, 1);
    let calls: Vec<(usize, usize)> = instructions
        .iter()
        .enumerate()
        .filter(|(_, [code, registers, ..])| (*code, registers >> 4) == CALL)
        .filter_map(|(at, [.., a, b, c, d])| {
            let after = isize::try_from(i32::from_ne_bytes([*a, *b, *c, *d])).ok()?;
            Some((at, at.checked_add_signed(after)?.checked_add(1)?))
        })
        .collect();
    let starts: BTreeSet<usize> = calls.iter().map(|(_, to)| *to).chain([0]).collect();
    let starts: Vec<usize> = starts.into_iter().collect();
    if starts.len() != stack.len() {
        return None;
    }
    let function = |at: usize| starts.partition_point(|start| *start <= at).checked_sub(1);
    let mut needs: Vec<u32> = stack
        .iter()
        .map(|bytes| bytes.max(&1).next_multiple_of(STACK_UNIT))
        .collect();
    let own = needs.clone();
    // No function calls itself: after so many rounds, the longest ways are complete.
    for _ in &starts {
        for (at, to) in &calls {
            let (caller, called) = (function(*at)?, function(*to)?);
            let with = own.get(caller)? + needs.get(called)?;
            let most = needs.get_mut(caller)?;
            *most = with.max(*most);
        }
    }
    needs.first().copied()
}

/// An instruction as the kernel takes it.
fn bytes(instruction: &bpf_insn) -> [u8; 8] {
    let [low, high] = instruction.off.to_ne_bytes();
    let [a, b, c, d] = instruction.imm.to_ne_bytes();
    let registers = (instruction.src_reg() << 4) | instruction.dst_reg();
    [instruction.code, registers, low, high, a, b, c, d]
}

/// `stack depth 208+64` and `processed 1234 insns (limit 1000000) …`.
fn figures(log: &str) -> Option<(u32, Vec<u32>)> {
    let stack = log
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("stack depth "))?;
    let stack = stack
        .split_whitespace()
        .next()?
        .split('+')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let processed = log
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("processed "))?;
    Some((processed.split_whitespace().next()?.parse().ok()?, stack))
}

fn refused(program: &'static str, error: &ProgramError) -> Refused {
    match error {
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => Refused {
            program,
            reason: io_error.to_string(),
            log: tail(&verifier_log.to_string()),
        },
        error => Refused {
            program,
            reason: error.to_string(),
            log: String::new(),
        },
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines
        .get(lines.len().saturating_sub(LOG_LINES)..)
        .unwrap_or_default()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_end_of_the_log() {
        let log = "processed by hand\nverification time 45 usec\nstack depth 208+0+64\nprocessed 1234 insns (limit \
                   1000000) max_states_per_insn 4 total_states 40 peak_states 40 mark_read 6\n";
        assert_eq!(figures(log), Some((1234, vec![208, 0, 64])));
        assert_eq!(figures("stack depth 8\n"), None);
        assert_eq!(figures("stack depth many\nprocessed 1 insns\n"), None);
        assert_eq!(figures(""), None);
    }

    #[test]
    fn the_deepest_calls_are_counted_as_older_kernels_do() {
        const CALL: u8 = 0x85;
        let call = |to: i32| {
            let [a, b, c, d] = to.to_ne_bytes();
            [CALL, 1 << 4, 0, 0, a, b, c, d]
        };
        let (helper, exit) = ([CALL, 0, 0, 0, 6, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]);
        // 0 calls the functions at 4 and 6; that at 4 calls that at 6.
        let program = [call(3), call(4), helper, exit, call(1), exit, helper, exit];
        assert_eq!(deepest(&program, &[8, 33, 100]), Some(32 + 64 + 128));
        assert_eq!(deepest(&program, &[0, 0, 480]), Some(32 + 32 + 480));
        assert_eq!(deepest(&program, &[8, 33]), None, "of two functions");
        assert_eq!(deepest(&[helper, exit], &[16]), Some(32));
    }

    #[test]
    fn of_a_long_log_the_end_is_shown() {
        let log: Vec<String> = (0..100).map(|line| line.to_string()).collect();
        let tail = tail(&log.join("\n"));
        assert_eq!(tail.lines().count(), LOG_LINES);
        assert!(tail.starts_with("60\n") && tail.ends_with("\n99"), "{tail}");
    }
}
