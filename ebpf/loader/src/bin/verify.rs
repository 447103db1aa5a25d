//! Loads every program of the embedded object and prints what the verifier says: one line for each program, of name,
//! instructions, instructions processed and stack depth, separated by tabs. Called by `cargo xtask ebpf verify`.
//!
//! Exit codes: 0 all were accepted, 1 one was refused, 2 could not run.

use std::process::ExitCode;

use lb_loader::{LoaderError, Verified, verify};

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode, LoaderError> {
    let mut code = ExitCode::SUCCESS;
    for result in verify()? {
        match result {
            Ok(Verified {
                program,
                instructions,
                processed,
                stack,
            }) => {
                let stack: Vec<String> = stack.iter().map(u32::to_string).collect();
                println!("{program}\t{instructions}\t{processed}\t{}", stack.join("+"));
            }
            Err(refused) => {
                eprintln!("error: {refused}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}
