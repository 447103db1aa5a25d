//! Tries what this kernel offers of what the datapath can use and prints it: one line for each feature, of its name and
//! `yes` or `no`, separated by a tab. Takes the folder of a cgroup v2. Called by `cargo xtask kernels`, in its machines.
//!
//! Exit codes: 0 all were tried, 2 could not run.

use std::{env, path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    let Some(cgroup) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("error: expected the folder of a cgroup v2, such as /sys/fs/cgroup");
        return ExitCode::from(2);
    };
    match lb_loader::features(&cgroup) {
        Ok(features) => {
            for feature in features {
                println!("{}\t{}", feature.name, if feature.offered { "yes" } else { "no" });
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
