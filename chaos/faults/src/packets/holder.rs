//! The helper on the node: `plumbline node hold-packets`.
//!
//! It opens the programs at devices by their ids, which keeps them and their maps alive, and attaches them again on command.
//! It detaches them and ends when its stdin ends, on SIGTERM, or when it expires.

use std::{collections::BTreeSet, io, os::fd::OwnedFd, path::PathBuf, process::ExitCode, time::Instant};

use doctor::{Found, Manner, Place, Scope, evict, inventory};
use lb_loader::{
    CraftedHook, Direction, HeldProgram, Layer, LoaderError, XdpMode, attach_filter, attach_tcx_link,
    attach_xdp, load_misleading, load_passing,
};

use super::{Again, Answer, AtDevice, Command};
use crate::{
    error::message,
    foreign::device,
    holder::{ENDING, POLL},
    journal::{Deed, Note},
    worker,
};

/// Priority of the filters.
const PRIORITY: u16 = 77;
/// Name of the XDP program.
const NAME: &str = "earlier_xdp";
/// Name of the program that tests whether the kernel has TCX.
const TRIAL: &str = "trial";

/// Arguments of `plumbline node hold-packets`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The node's cgroup.
    #[arg(long, value_name = "FOLDER")]
    cgroup: PathBuf,
    #[command(flatten)]
    helper: worker::HelperArguments,
}

/// Runs it to its end.
///
/// # Errors
/// A message for stderr: no second process, or devices can't be looked at.
pub async fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    if !arguments.helper.worker {
        return worker::supervise().await;
    }
    let mut holder = Holder {
        cgroup: arguments.cgroup.clone(),
        held: Vec::new(),
        attached: Vec::new(),
        notes: Vec::new(),
        links: Vec::new(),
    };
    let first = holder.take();
    let served = worker::serve(&arguments.helper, &answer(first), async |command| {
        answer(match command {
            Ok(Command::TryLinks) => return try_links(),
            Ok(Command::Attach(again)) => holder.attach(&again).await,
            Ok(Command::List) => holder.list(),
            Ok(Command::Detach) => holder.detach(),
            Err(why) => Err(why),
        })
    })
    .await;
    let detached = holder.detach()?;
    eprintln!("hold-packets: ended because {}; detached {detached:?}", served?);
    Ok(ExitCode::SUCCESS)
}

fn answer(done: Result<Vec<AtDevice>, String>) -> Answer {
    done.map_or_else(Answer::Failed, Answer::At)
}

/// Kernels before 6.6 have no TCX.
fn try_links() -> Answer {
    let attached = load_passing(TRIAL, CraftedHook::Device, &[], None)
        .and_then(|program| attach_tcx_link("lo", Direction::Ingress, &program));
    match attached {
        Ok(_link) => Answer::At(Vec::new()),
        Err(LoaderError::Kernel { source, what }) if source.kind() == io::ErrorKind::InvalidInput => {
            Answer::Unsupported(format!(
                "the kernel has no TCX, which came with Linux 6.6: failed to {what}: {source}"
            ))
        }
        Err(error) => Answer::Failed(error.to_string()),
    }
}

struct Holder {
    cgroup: PathBuf,
    held: Vec<Held>,
    /// Only what this helper attached, which it may detach.
    attached: Vec<HeldProgram>,
    /// For attachments without a link.
    notes: Vec<Note>,
    /// Closing these detaches their programs.
    links: Vec<OwnedFd>,
}

struct Held {
    index: u32,
    direction: Direction,
    id: u32,
    program: HeldProgram,
}

impl Holder {
    fn take(&mut self) -> Result<Vec<AtDevice>, String> {
        let mut held = Vec::new();
        for found in self.at_devices()? {
            if let Place::Device {
                index,
                layer: Layer::Tcx | Layer::Clsact,
                direction,
                ..
            } = found.place
            {
                let id = found.program.id;
                let program = HeldProgram::by_id(id).map_err(message)?;
                self.held.push(Held {
                    index,
                    direction,
                    id,
                    program,
                });
                held.push(describe(&found));
            }
        }
        Ok(held)
    }

    async fn attach(&mut self, again: &Again) -> Result<Vec<AtDevice>, String> {
        self.detach()?;
        match again {
            Again::Filters | Again::Links => self.attach_held(again).await?,
            Again::Xdp { device_of, pairs } => {
                let maps: BTreeSet<u32> = self
                    .held
                    .iter()
                    .flat_map(|held| held.program.map_ids().to_vec())
                    .collect();
                let maps: Vec<u32> = maps.into_iter().collect();
                self.end_held().await?;
                let program = load_misleading(NAME, &maps, pairs).map_err(message)?;
                let index = device(*device_of)?;
                attach_xdp(index, XdpMode::Generic, &program).map_err(message)?;
                let id = program.id();
                self.attached.push(program);
                self.notes.push(note(index, Layer::Xdp, Direction::Ingress, id)?);
            }
        }
        Ok(self.ours()?.iter().map(describe).collect())
    }

    /// Ends the original attachments of held programs: detaches filters, and waits until links without pins have ended.
    ///
    /// # Errors
    /// Some are still attached after [`ENDING`].
    async fn end_held(&self) -> Result<(), String> {
        let held = |found: &Found| self.held.iter().any(|held| held.id == found.program.id);
        let begun = Instant::now();
        loop {
            let mut left = self.at_devices()?;
            left.retain(held);
            if left.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > ENDING {
                let left: Vec<AtDevice> = left.iter().map(describe).collect();
                return Err(format!(
                    "expected that what is held ends with its agent and its pins; still attached after {ENDING:?}: {left:?}"
                ));
            }
            for found in left
                .iter()
                .filter(|found| !matches!(found.manner, Manner::Link { .. }))
            {
                evict(found, true).map_err(message)?;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// A link whose pin is gone may exist a moment longer and exclude a second attachment, so refusals are retried for
    /// [`ENDING`].
    async fn attach_held(&mut self, again: &Again) -> Result<(), String> {
        for held in &self.held {
            let begun = Instant::now();
            loop {
                let done = if *again == Again::Links {
                    attach_tcx_link(held.index, held.direction, &held.program)
                        .map(|link| self.links.push(link))
                } else {
                    attach_filter(held.index, held.direction, PRIORITY, &held.program)
                };
                match done {
                    Ok(()) => {
                        self.attached.push(HeldProgram::by_id(held.id).map_err(message)?);
                        if *again != Again::Links {
                            let note = note(held.index, Layer::Clsact, held.direction, held.id)?;
                            self.notes.push(note);
                        }
                    }
                    // The pod was deleted, and its device with it.
                    Err(LoaderError::NoDevice { .. }) => {}
                    Err(LoaderError::Kernel { source, .. })
                        if source.kind() == io::ErrorKind::AlreadyExists && begun.elapsed() < ENDING =>
                    {
                        tokio::time::sleep(POLL).await;
                        continue;
                    }
                    Err(error) => return Err(error.to_string()),
                }
                break;
            }
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<AtDevice>, String> {
        Ok(self.at_devices()?.iter().map(describe).collect())
    }

    /// Detaches what this helper attached. Returns what was still attached.
    fn detach(&mut self) -> Result<Vec<AtDevice>, String> {
        let left = self.ours()?;
        for found in &left {
            evict(found, true).map_err(message)?;
        }
        self.links.clear();
        self.attached.clear();
        for note in self.notes.drain(..) {
            note.undone();
        }
        Ok(left.iter().map(describe).collect())
    }

    /// What this helper attached and is still attached.
    fn ours(&self) -> Result<Vec<Found>, String> {
        let ours: Vec<u32> = self.attached.iter().map(HeldProgram::id).collect();
        if ours.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = self.at_devices()?;
        found.retain(|found| ours.contains(&found.program.id));
        Ok(found)
    }

    fn at_devices(&self) -> Result<Vec<Found>, String> {
        let scope = Scope {
            cgroup: self.cgroup.clone(),
            bpffs: None,
            current: Vec::new(),
        };
        let mut found = inventory(&scope).map_err(message)?.attachments;
        found.retain(|found| matches!(found.place, Place::Device { name: Some(_), .. }));
        Ok(found)
    }
}

fn note(index: u32, layer: Layer, direction: Direction, program: u32) -> Result<Note, String> {
    Note::write(Deed::AtDevice {
        index,
        layer: layer.name().to_owned(),
        direction: direction.name().to_owned(),
        program,
    })
}

fn describe(found: &Found) -> AtDevice {
    let (device, place) = match &found.place {
        Place::Device {
            name,
            layer,
            direction,
            ..
        } => (
            name.clone().unwrap_or_default(),
            format!("{} {direction}", layer.name()),
        ),
        other => (String::new(), other.to_string()),
    };
    AtDevice {
        device,
        place,
        manner: found.manner.to_string(),
        id: found.program.id,
    }
}
