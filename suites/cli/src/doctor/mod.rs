//! `plumbline doctor`: what rewrites connections and packets on this node, for any implementation.
//!
//! Files: `page` and `group` (the report on a page), `show` and `loose` (the full report), `problems` (for both),
//! `explain` and `client` (one destination, and the cgroup of its client), `fix` (evicts), `look` (examines, with a
//! spinner), `text` (paragraphs and tables of the terminal's width).
//!
//! Exit codes: [`HEALTHY`], [`PROBLEMS`], and [`COULD_NOT_RUN`](crate::COULD_NOT_RUN) on errors.

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

use crate::terminal;

/// No problem was found; for `explain`, all programs agree about the destination.
const HEALTHY: u8 = 0;
/// At least one problem was found, or remains after `--fix`.
const PROBLEMS: u8 = 1;

/// Show what rewrites connections and packets on this node, and which programs are left over from an earlier start.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    long_about = "\
Show what rewrites connections and packets on this node, in which order, by which maps, and which implementation owns it: \
this project's agent, Cilium, Calico or another one. Needs no cluster and no agent; run it as root on the node itself (or in a container with the \
host's process, network, cgroup and mount namespaces). It only reads, except with --fix.",
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
      shows what happens to one destination, program by program
    # plumbline doctor --fix --suspected
      shows what would be detached and why, asks for confirmation, detaches, examines again

WHAT IS CALLED STALE
  certain    a program of this project's agent that its pins do not name, beside one that they do
  suspected  two programs of one owner at the same hook of one chain that read different maps of
             the same name, of which the younger one's are pinned or the older one's are not.
             Owners other than this project are guessed from names and pins, which any program
             may choose: read the reasons before you agree.

EXIT CODES
  0  healthy, as far as could be read (what could not be read is listed)
  1  problems, or problems that remain after --fix; explain: a stale program decides, or programs
     disagree
  2  nothing could be examined: privileges are missing (root, or CAP_SYS_ADMIN and
     CAP_NET_ADMIN), no cgroup v2 here; or --fix did nothing
"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    scope: Scope,
    /// Print JSON, whose format is documented in `doctor::report`
    #[arg(long)]
    json: bool,
    /// Also list every service of every set of maps with a known layout
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
    /// Show what happens to connections to one destination: each program in the order in which the kernel runs them
    Explain(explain::Arguments),
}

/// What to examine.
#[derive(Clone, Debug, clap::Args)]
struct Scope {
    /// Mount point of cgroup v2 [default: found in this mount namespace]
    #[arg(long, value_name = "FOLDER")]
    cgroup_mount: Option<PathBuf>,
    /// The bpffs of this project's agent
    #[arg(long, value_name = "FOLDER", default_value = "/sys/fs/bpf")]
    bpffs: PathBuf,
    /// Address where that agent answers /readyz
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9440")]
    agent: SocketAddr,
    /// Only show programs that run for processes of this cgroup and those below it: for nodes that share a kernel
    #[arg(long, value_name = "CGROUP")]
    below: Option<PathBuf>,
}

impl Scope {
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
        scope,
        json,
        services,
        verbose,
        fix,
    } = arguments;
    if let Some(Command::Explain(arguments)) = command {
        return explain::run(arguments).await;
    }
    let mut examination = look::look(scope.options(), services).await?;
    if fix.is_wanted() {
        return fix::run(&mut examination, &scope, &fix, json).await;
    }
    if json {
        terminal::print(&format!(
            "{}\n",
            serde_json::to_string_pretty(&examination.report)?
        ))?;
    } else if verbose {
        terminal::print(&show::report(&examination.report, text::width()))?;
    } else {
        terminal::print(&page::page(&examination.report, text::width()))?;
    }
    Ok(code(&examination.report))
}

fn code(report: &Report) -> ExitCode {
    ExitCode::from(match report.verdict {
        Verdict::Healthy => HEALTHY,
        Verdict::Problems => PROBLEMS,
    })
}
