//! The helper on the node: `plumbline node twin-maps`.
//!
//! Its program is attached by a link that only this process holds, so the kernel detaches it however the process ends.

use std::{collections::BTreeSet, os::fd::OwnedFd, path::PathBuf, process::ExitCode};

use lb_loader::{
    CraftedMap, Geometry, HeldProgram, Hook, Layout, RawEntry, RawMap, attach_link, load_passing,
    programs_attached,
};

use super::{Answer, Command, Twin};
use crate::{error::message, holder::hook, worker};

/// Name of the program, which no other has.
const NAME: &str = "bystander";
/// Largest map in bytes that gets a twin: the kernel would reserve as much again.
const LARGEST: u64 = 64 << 20;
/// Value of each byte of a sentinel, where the map type allows it.
const SENTINEL: u8 = 0x5a;
/// Most entries that are read.
const ENTRIES: usize = 4;

/// Arguments of `plumbline node twin-maps`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The agent's cgroup.
    #[arg(long, value_name = "FOLDER")]
    cgroup: PathBuf,
    /// A hook of it at which the agent has a program, such as connect4.
    #[arg(long, value_name = "HOOK")]
    hook: String,
    #[command(flatten)]
    helper: worker::HelperArguments,
}

/// Runs it to its end.
///
/// # Errors
/// A message for stderr: no second process, no such hook, or the kernel refuses the program.
pub async fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    if !arguments.helper.worker {
        return worker::supervise().await;
    }
    let mut twins = Twins {
        cgroup: arguments.cgroup.clone(),
        hook: hook(&arguments.hook)?,
        twins: Vec::new(),
        program: None,
    };
    let first = twins.make().and_then(|()| twins.look());
    let served = worker::serve(&arguments.helper, &answer(first), async |command| {
        answer(match command {
            Ok(Command::Look) => twins.look(),
            Ok(Command::Release) => {
                twins.release();
                Ok(Vec::new())
            }
            Err(why) => Err(why),
        })
    })
    .await;
    twins.release();
    eprintln!("twin-maps: ended because {}", served?);
    Ok(ExitCode::SUCCESS)
}

fn answer(done: Result<Vec<Twin>, String>) -> Answer {
    done.map_or_else(Answer::Failed, Answer::Twins)
}

struct Twins {
    cgroup: PathBuf,
    hook: Hook,
    twins: Vec<Made>,
    program: Option<Attached>,
}

struct Attached {
    id: u32,
    /// Ends with it.
    _link: OwnedFd,
}

struct Made {
    map: CraftedMap,
    of: u32,
    sentinel: RawEntry,
}

impl Twins {
    fn make(&mut self) -> Result<(), String> {
        let mut maps = BTreeSet::new();
        for id in programs_attached(&self.cgroup, self.hook, false).map_err(message)? {
            maps.extend(HeldProgram::by_id(id).map_err(message)?.map_ids().to_vec());
        }
        for of in maps {
            self.twins.extend(twin(of)?);
        }
        if self.twins.is_empty() {
            return Ok(());
        }
        let ids: Vec<u32> = self.twins.iter().map(|twin| twin.map.id()).collect();
        let program = load_passing(NAME, self.hook, &ids, None).map_err(message)?;
        let link = attach_link(&self.cgroup, self.hook, &program).map_err(message)?;
        self.program = Some(Attached {
            id: program.id(),
            _link: link,
        });
        Ok(())
    }

    fn look(&self) -> Result<Vec<Twin>, String> {
        let attached = programs_attached(&self.cgroup, self.hook, false).map_err(message)?;
        let program = self.program.as_ref().map(|program| program.id);
        let is_there = program.is_some_and(|id| attached.contains(&id));
        let look = |twin: &Made| {
            let wrong = match (is_there, twin.wrong()?) {
                (false, _) => Some("its program is detached".to_owned()),
                (true, wrong) => wrong,
            };
            Ok(Twin {
                name: twin.map.name().to_owned(),
                id: twin.map.id(),
                of: twin.of,
                wrong,
            })
        };
        self.twins.iter().map(look).collect()
    }

    fn release(&mut self) {
        self.program = None;
        self.twins.clear();
    }
}

impl Made {
    /// What has changed in a twin.
    fn wrong(&self) -> Result<Option<String>, String> {
        let map = RawMap::open(self.map.id())
            .map_err(message)?
            .ok_or("it is gone")?;
        if map.get(&self.sentinel.key).map_err(message)?.as_ref() != Some(&self.sentinel.value) {
            return Ok(Some("its sentinel was changed or removed".to_owned()));
        }
        let all = map.entries(ENTRIES).map_err(message)?;
        // An array has all entries; those that were not written are zero.
        let written =
            |entry: &&RawEntry| **entry != self.sentinel && entry.value.iter().any(|byte| *byte != 0);
        Ok(all
            .iter()
            .find(written)
            .map(|entry| format!("the key {:02x?} was written to it", entry.key)))
    }
}

/// Makes a twin. `None` if the map is too large, or of a type that can't hold a sentinel.
fn twin(of: u32) -> Result<Option<Made>, String> {
    let Some(found) = RawMap::open(of).map_err(message)? else {
        return Ok(None);
    };
    let Layout {
        key_size,
        value_size,
        max_entries,
        ..
    } = found.layout();
    if u64::from(key_size + value_size) * u64::from(max_entries) > LARGEST {
        return Ok(None);
    }
    let Ok(map) = CraftedMap::like(of, Geometry::default()) else {
        return Ok(None);
    };
    let sentinel = RawEntry {
        key: key(map.layout()),
        value: vec![SENTINEL; map.bytes_of_value()],
    };
    if map.put(&sentinel.key, &sentinel.value).is_err() {
        return Ok(None);
    }
    Ok(Some(Made { map, of, sentinel }))
}

/// A key that is valid in a map.
fn key(map: Layout) -> Vec<u8> {
    // `BPF_MAP_TYPE_…` of `linux/bpf.h`.
    const ARRAY: u32 = 2;
    const PERCPU_ARRAY: u32 = 6;
    const LPM_TRIE: u32 = 11;
    let size = usize::try_from(map.key_size).unwrap_or(usize::MAX);
    let mut key = vec![SENTINEL; size];
    let (first, bits) = match map.map_type {
        ARRAY | PERCPU_ARRAY => (4, 0),
        LPM_TRIE => (4, map.key_size.saturating_sub(4) * 8),
        _ => return key,
    };
    for (to, from) in key.iter_mut().take(first).zip(u32::to_ne_bytes(bits)) {
        *to = from;
    }
    key
}
