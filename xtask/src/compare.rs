//! `cargo xtask compare`: the reference agent and another implementation, each the other's oracle.

use std::process::ExitCode;

use crate::{e2e, steps};

/// Builds as the user, then plays random scenarios as root in two labs side by side.
#[derive(clap::Args)]
#[command(
    after_help = "kube-proxy is looked for on the PATH and in the folder that PLUMBLINE_KUBE_API names.\n\
                  Exit codes: 0 no difference, 1 differences, 2 could not run."
)]
pub(crate) struct Arguments {
    /// Seed of the first scenario; the default is chosen and printed
    #[arg(long)]
    seed: Option<u64>,
    /// Steps of each scenario
    #[arg(long)]
    steps: Option<u16>,
    /// Write what `plumbline chaos` writes
    #[arg(long)]
    chaos: bool,
    /// Faults of the API and of agents in both, too
    #[arg(long, requires = "chaos")]
    faults: bool,
    /// Continue with the next seeds for this long, such as 30m
    #[arg(long = "for", value_name = "DURATION")]
    lasts: Option<String>,
    /// Arguments for `plumbline compare`; `-- --help` lists them
    #[arg(last = true, value_name = "ARGS")]
    compare: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    e2e::build(&e2e::PROGRAMS)?;
    let program = steps::programs()?.join("plumbline");
    let mut command = steps::as_root(&program, "making two labs")?;
    command.arg("compare").current_dir(steps::root());
    let given = [
        ("--seed", arguments.seed.map(|seed| seed.to_string())),
        ("--steps", arguments.steps.map(|steps| steps.to_string())),
        ("--for", arguments.lasts.clone()),
    ];
    for (name, value) in given {
        if let Some(value) = value {
            command.args([name, &value]);
        }
    }
    for (name, is_given) in [("--chaos", arguments.chaos), ("--faults", arguments.faults)] {
        if is_given {
            command.arg(name);
        }
    }
    command.args(&arguments.compare);
    steps::become_("compare", &mut command)
}
