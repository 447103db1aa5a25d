//! The helper on the node: `plumbline node foreign-programs`.
//!
//! It attaches its programs without links and detaches them when its stdin ends, on SIGTERM, or when it expires.

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use doctor::{Found, Place, Scope, evict, inventory};
use lb_loader::{
    ALLOW_MULTI, CraftedHook, CraftedKind, CraftedMap, Direction, HeldProgram, Hook, Layer, LoaderError,
    RawMap, attach_filter, attach_legacy, attach_tcx, detach_legacy, load_passing, programs_attached,
};

use super::{Answer, Command, Tally};
use crate::{
    error::message,
    holder::{cgroup_id, hook},
    journal::{Deed, Note},
    worker,
};

/// Name of the programs and of their maps, which no other has.
const NAME: &str = "tally";
/// Priority of the filters: neither first nor last.
const PRIORITY: u16 = 30_000;

/// Arguments of `plumbline node foreign-programs`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The cgroup.
    #[arg(long, value_name = "FOLDER")]
    cgroup: PathBuf,
    /// Hooks of the cgroup, such as connect4; several with commas.
    #[arg(long, value_delimiter = ',', value_name = "HOOKS")]
    hooks: Vec<String>,
    /// Address of the device that gets programs too.
    #[arg(long, value_name = "ADDRESS")]
    device_of: IpAddr,
    #[command(flatten)]
    helper: worker::HelperArguments,
}

/// Runs it to its end.
///
/// # Errors
/// A message for stderr: no second process, no such hook or device, or the kernel refuses a program.
pub async fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    if !arguments.helper.worker {
        return worker::supervise().await;
    }
    let mut foreign = Foreign {
        cgroup: arguments.cgroup.clone(),
        programs: Vec::new(),
    };
    let first = foreign
        .attach(&arguments.hooks, arguments.device_of)
        .and_then(|()| foreign.count());
    let served = worker::serve(&arguments.helper, &answer(first), async |command| {
        answer(match command {
            Ok(Command::Count) => foreign.count(),
            Ok(Command::Detach) => foreign.detach().map(|()| Vec::new()),
            Err(why) => Err(why),
        })
    })
    .await;
    foreign.detach()?;
    eprintln!("foreign-programs: ended because {}", served?);
    Ok(ExitCode::SUCCESS)
}

fn answer(done: Result<Vec<Tally>, String>) -> Answer {
    done.map_or_else(Answer::Failed, Answer::Counted)
}

struct Foreign {
    cgroup: PathBuf,
    programs: Vec<Program>,
}

struct Program {
    at: At,
    program: HeldProgram,
    counter: u32,
    note: Option<Note>,
}

#[derive(Clone, Copy)]
enum At {
    Cgroup(Hook),
    Device(u32, Layer, Direction),
}

impl Foreign {
    fn attach(&mut self, hooks: &[String], device_of: IpAddr) -> Result<(), String> {
        for name in hooks {
            let hook = hook(name)?;
            let (program, counter) = load(hook.into())?;
            attach_legacy(&self.cgroup, hook, &program, ALLOW_MULTI).map_err(message)?;
            self.add(At::Cgroup(hook), program, counter)?;
        }
        let device = device(device_of)?;
        for direction in Direction::ALL {
            let (program, counter) = load(CraftedHook::Device)?;
            attach_filter(device, direction, PRIORITY, &program).map_err(message)?;
            self.add(At::Device(device, Layer::Clsact, direction), program, counter)?;
            let (program, counter) = load(CraftedHook::Device)?;
            match attach_tcx(device, direction, &program) {
                Ok(()) => self.add(At::Device(device, Layer::Tcx, direction), program, counter)?,
                // Kernels before 6.6 have no TCX.
                Err(LoaderError::Kernel { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {}
                Err(error) => return Err(message(error)),
            }
        }
        Ok(())
    }

    /// Adds an attached program. It is detached with the others even if its note can't be written.
    fn add(&mut self, at: At, program: HeldProgram, counter: u32) -> Result<(), String> {
        let id = program.id();
        self.programs.push(Program {
            at,
            program,
            counter,
            note: None,
        });
        let deed = match at {
            At::Cgroup(hook) => Deed::AtCgroup {
                cgroup: cgroup_id(&self.cgroup)?,
                hook: hook.name().to_owned(),
                program: id,
            },
            At::Device(index, layer, direction) => Deed::AtDevice {
                index,
                layer: layer.name().to_owned(),
                direction: direction.name().to_owned(),
                program: id,
            },
        };
        let note = Note::write(deed)?;
        if let Some(added) = self.programs.last_mut() {
            added.note = Some(note);
        }
        Ok(())
    }

    fn count(&self) -> Result<Vec<Tally>, String> {
        let found = self.at_devices()?;
        let tally = |Program {
                         at, program, counter, ..
                     }: &Program| {
            let attached = match *at {
                At::Cgroup(hook) => programs_attached(&self.cgroup, hook, false)
                    .map_err(message)?
                    .contains(&program.id()),
                At::Device(..) => found.iter().any(|found| is(found, *at, program)),
            };
            Ok(Tally {
                place: at.to_string(),
                program: program.id(),
                attached,
                count: count(*counter)?,
            })
        };
        self.programs.iter().map(tally).collect()
    }

    /// Detaches all that are still attached. The next call retries those that fail.
    fn detach(&mut self) -> Result<(), String> {
        let found = self.at_devices();
        let detach = |Program { at, program, .. }: &Program| match *at {
            At::Cgroup(hook) => detach_legacy(&self.cgroup, hook, program)
                .map(drop)
                .map_err(message),
            At::Device(..) => {
                for found in found.as_ref().map_err(Clone::clone)? {
                    if is(found, *at, program) {
                        evict(found, true).map_err(message)?;
                    }
                }
                Ok(())
            }
        };
        end_each(&mut self.programs, |program| {
            detach(program)?;
            program.note.iter().for_each(Note::undone);
            Ok(())
        })
    }

    fn at_devices(&self) -> Result<Vec<Found>, String> {
        let scope = Scope {
            cgroup: self.cgroup.clone(),
            bpffs: None,
            current: Vec::new(),
        };
        Ok(inventory(&scope).map_err(message)?.attachments)
    }
}

/// Ends each item, also after a failure. Keeps those that failed and returns the first error.
fn end_each<T>(all: &mut Vec<T>, mut end: impl FnMut(&T) -> Result<(), String>) -> Result<(), String> {
    let mut first = Ok(());
    all.retain(|one| {
        let ended = end(one);
        let failed = ended.is_err();
        if first.is_ok() {
            first = ended;
        }
        failed
    });
    first
}

/// Loads a counting program. Returns it and the id of its counter, which the program keeps alive.
fn load(hook: CraftedHook) -> Result<(HeldProgram, u32), String> {
    let counter = CraftedMap::create(NAME, CraftedKind::Array, (4, 8), 1).map_err(message)?;
    let program = load_passing(NAME, hook, &[], Some(&counter)).map_err(message)?;
    Ok((program, counter.id()))
}

fn count(counter: u32) -> Result<u64, String> {
    let map = RawMap::open(counter).map_err(message)?;
    let value = match map {
        Some(map) => map.get(&0_u32.to_ne_bytes()).map_err(message)?,
        None => None,
    };
    let value = value.and_then(|value| value.try_into().ok());
    value
        .map(u64::from_ne_bytes)
        .ok_or_else(|| format!("expected a counter of 8 bytes in map {counter}, found none"))
}

fn is(found: &Found, at: At, program: &HeldProgram) -> bool {
    let At::Device(device, wanted, towards) = at else {
        return false;
    };
    let Place::Device {
        index,
        name: Some(_),
        layer,
        direction,
    } = &found.place
    else {
        return false;
    };
    (*index, *layer, *direction) == (device, wanted, towards) && found.program.id == program.id()
}

/// The index of the device with an address.
pub(crate) fn device(address: IpAddr) -> Result<u32, String> {
    let failed = |errno| format!("can't list the addresses of the node: {errno}");
    let has_it = |one: &nix::ifaddrs::InterfaceAddress| {
        one.address.is_some_and(|found| match address {
            IpAddr::V4(v4) => found.as_sockaddr_in().is_some_and(|found| found.ip() == v4),
            IpAddr::V6(v6) => found.as_sockaddr_in6().is_some_and(|found| found.ip() == v6),
        })
    };
    let found = nix::ifaddrs::getifaddrs()
        .map_err(failed)?
        .find(has_it)
        .ok_or_else(|| format!("no device of the node has the address {address}"))?;
    nix::net::if_::if_nametoindex(Path::new(&found.interface_name)).map_err(failed)
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cgroup(hook) => write!(f, "{hook}"),
            Self::Device(_, layer, direction) => write!(f, "{} {direction}", layer.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_does_not_stop_the_others() {
        let (mut all, mut asked) = (vec![1, 2, 3, 4], Vec::new());
        let first = end_each(&mut all, |one| {
            asked.push(*one);
            if one % 2 == 0 {
                Err(one.to_string())
            } else {
                Ok(())
            }
        });
        assert_eq!(first, Err("2".to_owned()));
        assert_eq!(asked, [1, 2, 3, 4]);
        assert_eq!(all, [2, 4], "to be tried again");
        assert_eq!(end_each(&mut all, |_| Ok(())), Ok(()));
        assert!(all.is_empty());
    }
}
