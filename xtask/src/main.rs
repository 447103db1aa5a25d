//! The project's own commands: `cargo xtask`.
//!
//! Each command builds what it needs and calls the program that does the work.
//!
//! | module | command |
//! |---|---|
//! | `e2e` | the suite against the reference agent |
//! | `test`, `runner` | every test of the workspace, with root for those that need it |
//! | `chaos` | seeded faults under load |
//! | `simulate` | the same faults against the agent's own parts, in simulated time |
//! | `compare` | the reference agent beside kube-proxy, by random scenarios |
//! | `kernels` | the real-kernel tests and a lab on other kernels, in virtual machines |
//! | `ci` | everything that a change must pass, without parts that it can't affect |
//! | `mutants` | the suite against agents with one known bug each; one of them as an unknown implementation on kind |
//! | `ebpf` | the eBPF object: built, or compared with the committed one |
//! | `dist` | the programs of a release: static, reproducible |
//! | `bench` | costs of the datapath, and of the agent |
//! | `miri` | the pure crates under Miri, both byte orders |
//! | `docs` | the documentation: pages that are generated, links and commands that are checked, the book |
//! | `lint`, `tidy`, `workflows` | formatting, clippy, dependencies, the rules of the layout and of workflows |
//! | `soak` | random histories by the million, the suite by the dozen |
//! | `job` | commands in sessions of their own, and their processor time |
//! | `steps` | runs, times and names commands |

mod bench;
mod chaos;
mod ci;
mod compare;
mod dist;
mod docs;
mod e2e;
mod ebpf;
mod job;
mod kernels;
mod lint;
mod miri;
mod mutants;
mod runner;
#[cfg(test)]
mod scripts;
mod simulate;
mod soak;
mod steps;
mod test;
mod tidy;
mod workflows;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// The project's own commands. Start with `cargo xtask e2e`.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Build everything and run the suite against the reference agent, in a cluster made for it
    E2e(e2e::Arguments),
    /// Run every test: unit, property, real kernel, contract
    Test(test::Arguments),
    /// Run the suite against agents that carry one known bug each; every one must be caught
    Mutants(mutants::Arguments),
    /// Test an implementation that the suite only knows by its target file, installed on kind
    BrandX(mutants::brand_x::Arguments),
    /// Play seeded writes and faults under load, and judge what clients saw
    Chaos(chaos::Arguments),
    /// Play thousands of schedules of faults against the agent's own parts, in simulated time, without root
    Simulate(simulate::Arguments),
    /// Play random Services and clients in the reference agent and in kube-proxy side by side, and show their
    /// differences
    Compare(compare::Arguments),
    /// Run the packet tables, the socket tests and a lab on other kernels, in virtual machines
    Kernels(kernels::Arguments),
    /// Build the eBPF object, or check that the committed one matches its sources
    Ebpf(ebpf::Args),
    /// Build the programs of a release: static, stripped, reproducible
    Dist(dist::Arguments),
    /// Measure the costs of the datapath, or of the agent
    Bench(bench::Args),
    /// Run by the million what tests run by the thousand, and the suite by the dozen; failures can be replayed by their seed
    Soak(soak::Args),
    /// Run the tests of the pure crates under Miri, on both byte orders (needs a nightly toolchain with miri)
    Miri,
    /// Write what is generated of the documentation, check its links and commands, and build the book
    Docs(docs::Arguments),
    /// Check formatting, lints, dependencies, links of documents and the rules of the layout
    Lint,
    /// Check the rules of the layout alone, or print the import graph of crates and modules
    Tidy(tidy::Arguments),
    /// Run everything that a change must pass; parts that it can't affect are left out, and named
    Ci(ci::Arguments),
    /// Become a command in a session of its own (started by `ci`)
    #[command(hide = true)]
    Job(job::Arguments),
    /// Run one test program, with root if its package needs it (started by cargo during `test`)
    #[command(hide = true)]
    Runner(runner::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        None => print_commands(),
        Some(Command::E2e(arguments)) => e2e::run(&arguments),
        Some(Command::Test(arguments)) => test::run(&arguments),
        Some(Command::Mutants(arguments)) => mutants::run(&arguments),
        Some(Command::BrandX(arguments)) => mutants::brand_x::run(&arguments),
        Some(Command::Chaos(arguments)) => chaos::run(&arguments),
        Some(Command::Simulate(arguments)) => simulate::run(&arguments),
        Some(Command::Compare(arguments)) => compare::run(&arguments),
        Some(Command::Kernels(arguments)) => kernels::run(&arguments),
        Some(Command::Ebpf(arguments)) => ebpf::run(&arguments),
        Some(Command::Dist(arguments)) => dist::run(&arguments),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Soak(args)) => soak::run(&args),
        Some(Command::Miri) => miri::run(),
        Some(Command::Docs(arguments)) => docs::run(&arguments),
        Some(Command::Lint) => lint::run(),
        Some(Command::Tidy(arguments)) => tidy::run(&arguments),
        Some(Command::Ci(arguments)) => ci::run(&arguments),
        Some(Command::Job(arguments)) => job::become_it(&arguments),
        Some(Command::Runner(arguments)) => runner::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

/// Prints the commands, and which to try first.
fn print_commands() -> anyhow::Result<ExitCode> {
    Arguments::command().print_help()?;
    println!(
        "\nFirst steps:\n  \
         cargo xtask e2e                 the main job: a cluster on this machine, the suite, a verdict\n  \
         cargo xtask e2e -- --filter release   only some cases; `-- --help` shows what else it takes\n  \
         cargo xtask test                all tests\n  \
         cargo xtask mutants             does the suite catch what it exists for?\n\n\
         Root is needed to run them, not to build them: as a user, sudo is asked only for that part.\n\
         Exit codes: 0 nothing failed, 1 something failed, 2 could not run."
    );
    Ok(ExitCode::SUCCESS)
}
