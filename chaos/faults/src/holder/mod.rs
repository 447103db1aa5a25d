//! The helper on the node: `plumbline node hold-programs`.
//!
//! It opens the programs that are attached to a cgroup by their ids, which keeps them and their maps alive, and attaches
//! them again on command. It detaches them and ends when its stdin ends, on SIGTERM, or when it expires: a case that is
//! killed leaves nothing on the node.

mod cgroup;
mod displaced_links;

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use lb_loader::{
    ALLOW_MULTI, ALLOW_OVERRIDE, Hook, LoaderError, attach_legacy, attach_link, detach_legacy,
    programs_attached,
};

pub(crate) use self::cgroup::cgroup_id;
use self::{cgroup::TargetCgroup, displaced_links::Displaced};
use crate::{
    error::message,
    journal::{Deed, Note},
    protocol::{Answer, As, At, Attached, Command, HeldProgram, Staging},
    worker,
};

/// How long the kernel may take to end a link whose pin is gone: a worker does that.
pub(crate) const ENDING: Duration = Duration::from_secs(10);
/// Between two looks at what is attached.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Arguments of `plumbline node hold-programs`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The cgroup.
    #[arg(long, value_name = "FOLDER")]
    cgroup: PathBuf,
    /// Hooks to hold, such as connect4; several with commas.
    #[arg(long, value_delimiter = ',', value_name = "HOOKS")]
    hooks: Vec<String>,
    #[command(flatten)]
    helper: worker::HelperArguments,
}

/// Runs it to its end.
///
/// # Errors
/// In words, for stderr: no second process, no such hook, or programs can't be held.
pub async fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    if !arguments.helper.worker {
        return worker::supervise().await;
    }
    let mut holder = Holder::take(&arguments.cgroup, &arguments.hooks)?;
    let first = Answer::Holds(holder.describe());
    let why = worker::serve(&arguments.helper, &first, async |command| {
        let answer = match command {
            Ok(Command::Attach(staging)) => holder.attach(staging).await,
            Ok(Command::Displace { removed }) => holder.displace(removed).await,
            Ok(Command::Pinned) => displaced_links::pins(&holder.cgroup, &holder.held).map(Answer::Pinned),
            Ok(Command::List) => holder.list().map(Answer::Attached),
            Ok(Command::Detach) => holder.detach().map(Answer::Done),
            Err(why) => Err(why),
        };
        answer.unwrap_or_else(Answer::Failed)
    })
    .await?;
    let detached = holder.detach()?;
    eprintln!("hold-programs: ended because {why}; detached {detached:?}");
    Ok(ExitCode::SUCCESS)
}

struct Holder {
    /// The agent's.
    cgroup: PathBuf,
    /// The one that programs are attached to.
    target: TargetCgroup,
    hooks: Vec<Hook>,
    held: Vec<Held>,
    displaced: Option<Displaced>,
}

struct Held {
    hook: Hook,
    program: lb_loader::HeldProgram,
    /// Only what this helper attached, which it may detach.
    attached: Option<Ours>,
    /// For attachments without a link.
    note: Option<Note>,
}

/// How this helper attached a program.
enum Ours {
    Legacy,
    Link {
        /// Closing it detaches the program.
        _link: OwnedFd,
    },
}

impl Holder {
    fn take(cgroup: &Path, hooks: &[String]) -> Result<Self, String> {
        let hooks: Vec<Hook> = hooks.iter().map(|name| hook(name)).collect::<Result<_, _>>()?;
        let mut held = Vec::new();
        for &hook in &hooks {
            for id in programs_attached(cgroup, hook, false).map_err(message)? {
                let program = lb_loader::HeldProgram::by_id(id).map_err(message)?;
                held.push(Held {
                    hook,
                    program,
                    attached: None,
                    note: None,
                });
            }
        }
        Ok(Self {
            cgroup: cgroup.to_owned(),
            target: TargetCgroup::own(cgroup),
            hooks,
            held,
            displaced: None,
        })
    }

    fn describe(&self) -> Vec<HeldProgram> {
        let describe = |held: &Held| HeldProgram {
            hook: held.hook.name().to_owned(),
            id: held.program.id(),
            name: held.program.name().to_owned(),
            maps: held.program.map_ids().to_vec(),
        };
        self.held.iter().map(describe).collect()
    }

    /// Attaches what is held. Programs that are still attached without a link stay as they are. A link whose pin is gone
    /// may exist a moment longer and exclude others, so refusals are retried for [`ENDING`].
    async fn attach(&mut self, Staging { at, manner }: Staging) -> Result<Answer, String> {
        self.detach()?;
        self.target = match at {
            At::Own => TargetCgroup::own(&self.cgroup),
            At::Below => TargetCgroup::below(&self.cgroup)?,
            At::Above => TargetCgroup::above(&self.cgroup)?,
            At::AboveShown => TargetCgroup::above_shown(&self.cgroup)?,
        };
        let mut done = Vec::new();
        for held in &mut self.held {
            let begun = Instant::now();
            let attached = loop {
                match attach(self.target.path(), held, manner) {
                    Err(error)
                        if has_kind(&error, io::ErrorKind::PermissionDenied) && begun.elapsed() < ENDING =>
                    {
                        tokio::time::sleep(POLL).await;
                    }
                    attached => break attached,
                }
            };
            match attached {
                Ok(ours) => {
                    let outlasts_us = matches!(ours, Ours::Legacy);
                    // Before anything else may fail, so that it is detached with the others.
                    held.attached = Some(ours);
                    if outlasts_us {
                        held.note = Some(Note::write(Deed::AtCgroup {
                            cgroup: cgroup_id(self.target.path())?,
                            hook: held.hook.name().to_owned(),
                            program: held.program.id(),
                        })?);
                    }
                    done.push(held.program.id());
                }
                // It is attached already: the kernel does not attach a program twice without links.
                Err(error) if has_kind(&error, io::ErrorKind::InvalidInput) => {}
                Err(error) if has_kind(&error, io::ErrorKind::PermissionDenied) => {
                    self.detach()?;
                    return Ok(Answer::Refused(error.to_string()));
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(Answer::Done(done))
    }

    /// Replaces the pinned links by ones to an empty cgroup, and waits until the old links have ended.
    async fn displace(&mut self, removed: bool) -> Result<Answer, String> {
        self.detach()?;
        let displaced = Displaced::make(&self.cgroup, &self.held, removed)?;
        let pins = displaced.pins().to_vec();
        self.displaced = Some(displaced);
        let begun = Instant::now();
        while !pins.is_empty() && self.is_attached()? {
            if begun.elapsed() > ENDING {
                return Err(format!(
                    "the links that were pinned have not ended within {ENDING:?}"
                ));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(Answer::Pinned(pins))
    }

    /// Whether anything that is held is attached to the agent's cgroup.
    fn is_attached(&self) -> Result<bool, String> {
        for held in &self.held {
            let attached = programs_attached(&self.cgroup, held.hook, false);
            if attached.map_err(message)?.contains(&held.program.id()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn list(&self) -> Result<Vec<Attached>, String> {
        let at = |&hook: &Hook| {
            Ok(Attached {
                hook: hook.name().to_owned(),
                effective: programs_attached(self.target.path(), hook, true).map_err(message)?,
                direct: programs_attached(self.target.path(), hook, false).map_err(message)?,
            })
        };
        self.hooks.iter().map(at).collect()
    }

    /// Detaches what this helper attached. Returns the ids of programs that were still attached. One that can't be detached
    /// keeps its note and does not stop the others; the first error is returned.
    fn detach(&mut self) -> Result<Vec<u32>, String> {
        self.displaced = None;
        let mut done = Vec::new();
        let mut first = None;
        for held in &mut self.held {
            let id = held.program.id();
            let was_there = match &held.attached {
                None => continue,
                Some(Ours::Legacy) => detach_legacy(self.target.path(), held.hook, &held.program),
                Some(Ours::Link { .. }) => programs_attached(self.target.path(), held.hook, false)
                    .map(|attached| attached.contains(&id)),
            };
            match was_there {
                Ok(was_there) => {
                    held.attached = None;
                    if let Some(note) = held.note.take() {
                        note.undone();
                    }
                    done.extend(was_there.then_some(id));
                }
                Err(error) => first = first.or_else(|| Some(error.to_string())),
            }
        }
        first.map_or(Ok(done), Err)
    }
}

fn attach(cgroup: &Path, held: &Held, manner: As) -> Result<Ours, LoaderError> {
    let legacy = |flags| attach_legacy(cgroup, held.hook, &held.program, flags).map(|()| Ours::Legacy);
    match manner {
        As::Multi => legacy(ALLOW_MULTI),
        As::Override => legacy(ALLOW_OVERRIDE),
        As::Exclusive => legacy(0),
        As::Link => attach_link(cgroup, held.hook, &held.program).map(|_link| Ours::Link { _link }),
    }
}

fn has_kind(error: &LoaderError, kind: io::ErrorKind) -> bool {
    matches!(error, LoaderError::Kernel { source, .. } if source.kind() == kind)
}

pub(crate) fn hook(name: &str) -> Result<Hook, String> {
    Hook::ALL
        .into_iter()
        .find(|hook| hook.name() == name)
        .ok_or_else(|| {
            let known: Vec<_> = Hook::ALL.iter().map(|hook| hook.name()).collect();
            format!("there is no hook {name:?}; expected one of {}", known.join(", "))
        })
}
