//! The helper on the node: `plumbline node hold-programs`.
//!
//! It takes hold of the programs attached to a cgroup by id, so that they and their maps outlive whatever loaded
//! them, and attaches them again when told. It detaches what it attached and ends when its stdin ends, on SIGTERM,
//! or when it expires, whichever comes first: a case that is killed leaves nothing on the node.
//!
//! The process that is started only waits for a second one, which does the work and shares its stdin and stdout: a
//! container runtime or a lab that kills what it started does not kill the one that has to clean up.

mod place;

use std::{
    env, io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    time::{Duration, Instant},
};

use lb_loader::{Hook, LoaderError, Manner, attach_legacy, attach_link, detach_legacy, programs_attached};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, stdin, stdout},
    process,
    signal::unix::{SignalKind, signal},
};

use self::place::Place;
use crate::protocol::{Answer, As, At, Attached, Command, HeldProgram, Staging};

/// How long a link whose pin has gone may be seen still: a worker of the kernel ends it.
const ENDING: Duration = Duration::from_secs(10);
/// How often is looked.
const POLL: Duration = Duration::from_millis(20);

/// Arguments of `plumbline node hold-programs`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The cgroup.
    #[arg(long, value_name = "FOLDER")]
    cgroup: PathBuf,
    /// Hooks to hold, such as connect4; several with commas.
    #[arg(long, value_delimiter = ',', value_name = "HOOKS")]
    hooks: Vec<String>,
    /// Detaches and ends after so many seconds.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    expires_s: u64,
    /// Does the work itself.
    #[arg(long, hide = true)]
    worker: bool,
}

/// Runs it to its end.
///
/// # Errors
/// In words, for stderr: no second process, no such hook, or programs can't be held.
pub async fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    if arguments.worker {
        work(arguments).await
    } else {
        supervise().await
    }
}

/// Starts the worker in a process group of its own and waits for it.
async fn supervise() -> Result<ExitCode, String> {
    let mut worker = process::Command::new("/proc/self/exe")
        .arg0("plumbline")
        .args(env::args_os().skip(1))
        .arg("--worker")
        .stdin(Stdio::inherit())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("failed to start the worker: {error}"))?;
    let status = worker
        .wait()
        .await
        .map_err(|error| format!("failed to wait for the worker: {error}"))?;
    let code = status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

async fn work(arguments: &Arguments) -> Result<ExitCode, String> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut holder = Holder::take(&arguments.cgroup, &arguments.hooks)?;
    say(&Answer::Holds(holder.describe())).await?;
    let mut lines = BufReader::new(stdin()).lines();
    let expiry = tokio::time::sleep(Duration::from_secs(arguments.expires_s));
    tokio::pin!(expiry);
    let why = loop {
        let line = tokio::select! {
            line = lines.next_line() => line,
            () = &mut expiry => break "it expired",
            _ = terminate.recv() => break "it was told to end",
        };
        let Ok(Some(line)) = line else {
            break "its user is gone";
        };
        let answer = match serde_json::from_str(&line) {
            Ok(Command::Attach(staging)) => holder.attach(staging).await.map(Answer::Done),
            Ok(Command::List) => holder.list().map(Answer::Attached),
            Ok(Command::Detach) => holder.detach().map(Answer::Done),
            Err(error) => Err(format!("{line:?} is no command: {error}")),
        };
        if say(&answer.unwrap_or_else(Answer::Failed)).await.is_err() {
            break "nobody reads its answers";
        }
    };
    let detached = holder.detach()?;
    eprintln!("hold-programs: ended because {why}; detached {detached:?}");
    Ok(ExitCode::SUCCESS)
}

async fn say(answer: &Answer) -> Result<(), String> {
    let mut line = serde_json::to_string(answer).map_err(|error| error.to_string())?;
    line.push('\n');
    let mut stdout = stdout();
    stdout
        .write_all(line.as_bytes())
        .await
        .map_err(|error| error.to_string())?;
    stdout.flush().await.map_err(|error| error.to_string())
}

struct Holder {
    /// The agent's.
    cgroup: PathBuf,
    /// To which it has attached.
    place: Place,
    hooks: Vec<Hook>,
    held: Vec<Held>,
}

struct Held {
    hook: Hook,
    program: lb_loader::HeldProgram,
    /// By us: what was attached before is somebody else's to detach.
    attached: Option<Ours>,
}

/// How a program was attached by us.
enum Ours {
    Legacy,
    Link {
        /// Ends with it.
        _link: OwnedFd,
    },
}

impl Holder {
    fn take(cgroup: &Path, hooks: &[String]) -> Result<Self, String> {
        let hooks: Vec<Hook> = hooks.iter().map(|name| hook(name)).collect::<Result<_, _>>()?;
        let mut held = Vec::new();
        for &hook in &hooks {
            for id in programs_attached(cgroup, hook, false).map_err(|error| error.to_string())? {
                let program = lb_loader::HeldProgram::by_id(id).map_err(|error| error.to_string())?;
                held.push(Held {
                    hook,
                    program,
                    attached: None,
                });
            }
        }
        Ok(Self {
            cgroup: cgroup.to_owned(),
            place: Place::own(cgroup),
            hooks,
            held,
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

    /// What is still attached the legacy way, as an implementation without links leaves it, is in place already. What is
    /// attached by a link is not: one whose pin has just gone is still seen, until a worker of the kernel comes to it,
    /// and lets in none that wants to be alone.
    async fn attach(&mut self, Staging { at, manner }: Staging) -> Result<Vec<u32>, String> {
        self.detach()?;
        self.place = match at {
            At::Own => Place::own(&self.cgroup),
            At::Below => Place::below(&self.cgroup)?,
            At::Above => Place::above(&self.cgroup)?,
        };
        let mut done = Vec::new();
        for held in &mut self.held {
            let begun = Instant::now();
            let attached = loop {
                match attach(&self.place.path, held, manner) {
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
                    held.attached = Some(ours);
                    done.push(held.program.id());
                }
                // The kernel does not attach one program twice the legacy way.
                Err(error) if has_kind(&error, io::ErrorKind::InvalidInput) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(done)
    }

    fn list(&self) -> Result<Vec<Attached>, String> {
        let at = |&hook: &Hook| {
            Ok(Attached {
                hook: hook.name().to_owned(),
                effective: programs_attached(&self.place.path, hook, true)
                    .map_err(|error| error.to_string())?,
                direct: programs_attached(&self.place.path, hook, false)
                    .map_err(|error| error.to_string())?,
            })
        };
        self.hooks.iter().map(at).collect()
    }

    /// Returns the ids of what was attached until now.
    fn detach(&mut self) -> Result<Vec<u32>, String> {
        let mut done = Vec::new();
        for held in &mut self.held {
            let id = held.program.id();
            let was_there = match held.attached.take() {
                None => false,
                Some(Ours::Legacy) => detach_legacy(&self.place.path, held.hook, &held.program)
                    .map_err(|error| error.to_string())?,
                Some(Ours::Link { .. }) => programs_attached(&self.place.path, held.hook, false)
                    .map_err(|error| error.to_string())?
                    .contains(&id),
            };
            if was_there {
                done.push(id);
            }
        }
        Ok(done)
    }
}

fn attach(cgroup: &Path, held: &Held, manner: As) -> Result<Ours, LoaderError> {
    let legacy = |flags| attach_legacy(cgroup, held.hook, &held.program, flags).map(|()| Ours::Legacy);
    match manner {
        As::Multi => legacy(Manner::MULTI),
        As::Override => legacy(Manner::OVERRIDE),
        As::Exclusive => legacy(0),
        As::Link => attach_link(cgroup, held.hook, &held.program).map(|_link| Ours::Link { _link }),
    }
}

fn has_kind(error: &LoaderError, kind: io::ErrorKind) -> bool {
    matches!(error, LoaderError::Kernel { source, .. } if source.kind() == kind)
}

fn hook(name: &str) -> Result<Hook, String> {
    Hook::ALL
        .into_iter()
        .find(|hook| hook.name() == name)
        .ok_or_else(|| {
            let known: Vec<_> = Hook::ALL.iter().map(|hook| hook.name()).collect();
            format!("there is no hook {name:?}; expected one of {}", known.join(", "))
        })
}
