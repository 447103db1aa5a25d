//! `plumbline lab down`.

use std::process::ExitCode;

use lab::{DEFAULT_NAME, Downed};

#[derive(Debug, clap::Args)]
pub(crate) struct DownArgs {
    /// The lab's name.
    #[arg(long, default_value = DEFAULT_NAME, conflicts_with = "all")]
    name: String,
    /// Every lab on this host.
    #[arg(long)]
    all: bool,
}

pub(super) async fn run(args: DownArgs) -> anyhow::Result<ExitCode> {
    let names = if args.all { lab::labs()? } else { vec![args.name] };
    if names.is_empty() {
        println!("no lab is up, and none has left anything");
    }
    for name in names {
        match lab::down(&name).await? {
            Downed::Up => println!("lab {name} is down"),
            Downed::Leftovers => println!("lab {name} was dead; what it left is removed"),
            Downed::Nothing => println!("lab {name} is not up, and has left nothing"),
        }
    }
    Ok(ExitCode::SUCCESS)
}
