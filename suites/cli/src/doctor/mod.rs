//! `plumbline doctor`: what rewrites connections and packets on this node, of any implementation.
//!
//! Files: `page` and `group` (the report on a page), `show` and `loose` (all of it), `problems` (of both), `explain` and `client` (one destination, and whose cgroup is meant), `fix` (evicts),
//! `look` (examines, with a sign of life), `text` (paragraphs and tables of the terminal's width).
//!
//! Exit codes: [`HEALTHY`], [`PROBLEMS`]; what fails altogether ends with [`COULD_NOT_RUN`](crate::COULD_NOT_RUN).

mod client;
mod explain;
mod fix;
#[cfg(test)]
mod fixture;
mod group;
mod look;
mod loose;
mod page;
mod problems;
mod show;
mod text;

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use doctor::{
    Options,
    report::{Report, Verdict},
};

/// Nothing is wrong, as far as could be seen; or the programs agree about what was to be explained.
const HEALTHY: u8 = 0;
/// Something is wrong, or still is after `--fix`.
const PROBLEMS: u8 = 1;

/// What rewrites connections and packets on this node, and what of it is left over from an earlier start.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    long_about = "\
What rewrites connections and packets on this node, in which order, by which maps, and whose it is: this project's agent, \
Cilium, Calico or anybody's. Needs no cluster and no agent; run it as root on the node itself (or in a container with the \
host's process, network, cgroup and mount namespaces). It only reads, unless it is told to --fix.",
    after_long_help = "\
WHAT IT IS FOR
  Pods of one node can't reach 172.17.93.4:8080. The service has one endpoint, 172.16.109.127,
  and the agent's maps say so. tcpdump shows connections to 172.16.149.220, a pod that is gone,
  and none to 172.17.93.4. Restarting the agent and wiping its state changes nothing. Then:

    # plumbline doctor
    Program 113 (cil_sock4_conne, loaded 6 days ago) is suspected to be stale: it runs first at
    connect4 of /sys/fs/cgroup and reads map 27 (cilium_lb4_serv); program 205 (cil_sock4_conne,
    loaded 2 hours ago) runs after it and reads map 144 of the same name. The first decides: by
    map 27, TCP 172.17.93.4:8080 is 172.16.149.220:8080; program 205 then sees an address that is
    no service, and lets it pass. By map 144 it would be 172.16.109.127:8080. ...

    # plumbline doctor explain 172.17.93.4:8080
      what becomes of one destination, program by program
    # plumbline doctor --fix --suspected
      shows what would be detached and why, asks, detaches, looks again

WHAT IS CALLED STALE
  certain    a program of this project's agent that its pins do not name, beside one that they do
  suspected  two programs of one owner at the same hook of one chain that read different maps of
             the same name, of which the younger one's are pinned or the older one's are not.
             Owners other than this project are guessed from names and pins, which anybody may
             choose: look at the reasons before you agree.

EXIT CODES
  0  healthy, as far as could be seen (what could not be is listed)
  1  problems, or problems that remain after --fix; explain: a stale program decides, or programs
     disagree
  2  nothing could be looked at: privileges are missing (root, or CAP_SYS_ADMIN and
     CAP_NET_ADMIN), no cgroup v2 here; or nothing was done
"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    place: Place,
    /// As JSON, whose form is documented in `doctor::report`
    #[arg(long)]
    json: bool,
    /// Also list every service of every set of maps whose layout is known
    #[arg(long)]
    services: bool,
    /// List every program, tail call and map, place by place, instead of a page
    #[arg(short, long, conflicts_with_all = ["json", "fix"])]
    verbose: bool,
    #[command(flatten)]
    fix: fix::Fix,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// What becomes of one destination: through each program in the order in which the kernel runs them
    Explain(explain::Arguments),
}

/// Where to look.
#[derive(Clone, Debug, clap::Args)]
struct Place {
    /// Where cgroup v2 is mounted [default: where this mount namespace has it]
    #[arg(long, value_name = "FOLDER")]
    cgroup_mount: Option<PathBuf>,
    /// The bpffs of this project's agent
    #[arg(long, value_name = "FOLDER", default_value = "/sys/fs/bpf")]
    bpffs: PathBuf,
    /// Where that agent answers /readyz
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9440")]
    agent: SocketAddr,
    /// Only what runs for processes of this cgroup and of those below it: where several nodes share a kernel
    #[arg(long, value_name = "CGROUP")]
    below: Option<PathBuf>,
}

impl Place {
    fn options(&self) -> Options {
        Options {
            cgroup: self.cgroup_mount.clone(),
            bpffs: self.bpffs.clone(),
            agent: self.agent,
            below: self.below.clone(),
        }
    }
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments {
        command,
        place,
        json,
        services,
        verbose,
        fix,
    } = arguments;
    if let Some(Command::Explain(arguments)) = command {
        return explain::run(arguments).await;
    }
    let mut examination = look::look(place.options(), services).await?;
    if fix.is_wanted() {
        return fix::run(&mut examination, &place, &fix, json).await;
    }
    if json {
        text::say(&format!(
            "{}\n",
            serde_json::to_string_pretty(&examination.report)?
        ))?;
    } else if verbose {
        text::say(&show::report(&examination.report, text::width()))?;
    } else {
        text::say(&page::page(&examination.report, text::width()))?;
    }
    Ok(code(&examination.report))
}

fn code(report: &Report) -> ExitCode {
    ExitCode::from(match report.verdict {
        Verdict::Healthy => HEALTHY,
        Verdict::Problems => PROBLEMS,
    })
}
