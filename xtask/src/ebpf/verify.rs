//! `cargo xtask ebpf verify`: the verifier's figures of each program, compared with the committed ones.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    process::{ExitCode, Stdio},
};

use anyhow::{Context as _, bail, ensure};

use crate::steps;

/// The committed figures, below the root of the repository.
const FIGURES: &str = "ebpf/prebuilt/verified.tsv";
/// Permitted growth of a program, in per cent of the instructions processed.
const GROWTH_PER_CENT: u64 = 10;

#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 all were accepted, 1 one was refused, or processes over 10 % more instructions than \
                  committed for this kernel release, 2 could not run."
)]
pub(crate) struct Args {
    /// Write these figures to ebpf/prebuilt/verified.tsv, to be committed
    #[arg(long)]
    write: bool,
}

/// The verifier's figures of one program.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    program: String,
    instructions: u64,
    processed: u64,
    /// The verifier's format: bytes of each function, with `+` between them.
    stack: String,
}

/// The figures of one kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Figures {
    kernel: String,
    rows: Vec<Row>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    const PROGRAM: &str = "lb-verify";
    let mut build = steps::cargo();
    build.args(["build", "--package", "lb-loader", "--bin", PROGRAM]);
    steps::must("build", &mut build)?;
    let output = steps::as_root(&steps::programs()?.join(PROGRAM), "loading eBPF programs")?
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("failed to start {PROGRAM}"))?;
    let all_accepted = match output.status.code() {
        Some(0) => true,
        Some(1) => false,
        _ => bail!("{PROGRAM} ended with {}; what it said is above", output.status),
    };
    let kernel = nix::sys::utsname::uname().context("failed to ask for the kernel's release")?;
    let now = Figures {
        kernel: kernel.release().to_string_lossy().into_owned(),
        rows: rows(&String::from_utf8_lossy(&output.stdout))?,
    };
    let path = steps::root().join(FIGURES);
    let committed = match fs::read_to_string(&path) {
        Ok(text) => Some(parse(&text).with_context(|| format!("failed to understand {FIGURES}"))?),
        Err(_) if args.write => None,
        Err(error) => {
            return Err(error).with_context(|| {
                format!("failed to read {FIGURES}; make it with `cargo xtask ebpf verify --write`")
            });
        }
    };
    let (table, grown) = compare(&now, committed.as_ref());
    print!("{table}");
    if !all_accepted {
        println!("programs were refused (see above)");
        return Ok(ExitCode::FAILURE);
    }
    if args.write {
        fs::write(&path, text(&now)).with_context(|| format!("failed to write {}", path.display()))?;
        println!("written to {FIGURES}");
        return Ok(ExitCode::SUCCESS);
    }
    if grown.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "grown by more than {GROWTH_PER_CENT} %: {}; if that is right: cargo xtask ebpf verify --write",
        grown.join(", ")
    );
    Ok(ExitCode::FAILURE)
}

/// The comparison as a table, and the programs that have grown too much.
fn compare(now: &Figures, committed: Option<&Figures>) -> (String, Vec<String>) {
    let before: BTreeMap<&str, &Row> = committed
        .iter()
        .flat_map(|figures| &figures.rows)
        .map(|row| (row.program.as_str(), row))
        .collect();
    let same_kernel = committed.is_some_and(|committed| release(&committed.kernel) == release(&now.kernel));
    let mut table = String::new();
    let mut grown = Vec::new();
    let header = [
        "program",
        "instructions",
        "processed",
        "committed",
        "",
        "stack",
        "committed",
    ];
    line(&mut table, &header.map(str::to_owned));
    for row in &now.rows {
        let old = before.get(row.program.as_str());
        let change = old.map(|old| per_cent(old.processed, row.processed));
        let most = old.map(|old| old.processed * (100 + GROWTH_PER_CENT) / 100);
        if same_kernel && most.is_some_and(|most| row.processed > most) {
            grown.push(row.program.clone());
        }
        line(
            &mut table,
            &[
                row.program.clone(),
                row.instructions.to_string(),
                row.processed.to_string(),
                old.map_or_else(|| "none".to_owned(), |old| old.processed.to_string()),
                change.map_or_else(String::new, |change| format!("{change:+.1} %")),
                row.stack.clone(),
                match old {
                    None => "none".to_owned(),
                    Some(old) if old.stack == row.stack => "the same".to_owned(),
                    Some(old) => old.stack.clone(),
                },
            ],
        );
    }
    for (program, _) in before {
        if !now.rows.iter().any(|row| row.program == program) {
            let _ = writeln!(table, "{program} was there before, and is not now");
        }
    }
    if let Some(committed) = committed {
        let judged = if same_kernel {
            "the same release"
        } else {
            "another release: nothing is judged by it"
        };
        let _ = writeln!(
            table,
            "kernel {}; committed on {}, {judged}",
            now.kernel, committed.kernel
        );
    }
    (table, grown)
}

fn line(
    table: &mut String,
    [
        program,
        instructions,
        processed,
        before,
        change,
        stack,
        stack_before,
    ]: &[String; 7],
) {
    let _ = writeln!(
        table,
        "{program:<13}{instructions:>13}{processed:>11}{before:>11}{change:>10}  {stack:<24}  {stack_before}"
    );
}

#[expect(clippy::cast_precision_loss, reason = "numbers below a million")]
fn per_cent(before: u64, now: u64) -> f64 {
    (now as f64 / before.max(1) as f64 - 1.0) * 100.0
}

/// Version and patch level: `6.18` of `6.18.44-fc`. Verifiers of one release process the same number of instructions.
fn release(kernel: &str) -> Option<(&str, &str)> {
    let mut numbers = kernel.split(['.', '-']);
    Some((numbers.next()?, numbers.next()?))
}

/// The first line of the file.
const KERNEL: &str = "# Measured on Linux ";

fn text(figures: &Figures) -> String {
    let mut text = format!(
        "{KERNEL}{}\n# program\tinstructions\tprocessed\tstack\n",
        figures.kernel
    );
    for Row {
        program,
        instructions,
        processed,
        stack,
    } in &figures.rows
    {
        let _ = writeln!(text, "{program}\t{instructions}\t{processed}\t{stack}");
    }
    text
}

fn parse(text: &str) -> anyhow::Result<Figures> {
    let kernel = text
        .lines()
        .find_map(|line| line.strip_prefix(KERNEL))
        .with_context(|| format!("expected a line {KERNEL:?} and the release"))?;
    Ok(Figures {
        kernel: kernel.to_owned(),
        rows: rows(text)?,
    })
}

fn rows(text: &str) -> anyhow::Result<Vec<Row>> {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            ensure!(
                fields.len() == 4,
                "expected four fields between tabs, found {line:?}"
            );
            let number = |at: usize| -> anyhow::Result<u64> {
                fields[at]
                    .parse()
                    .with_context(|| format!("expected a number, found {:?}", fields[at]))
            };
            Ok(Row {
                program: fields[0].to_owned(),
                instructions: number(1)?,
                processed: number(2)?,
                stack: fields[3].to_owned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(kernel: &str, processed: u64) -> Figures {
        Figures {
            kernel: kernel.to_owned(),
            rows: vec![Row {
                program: "connect4".to_owned(),
                instructions: 90,
                processed,
                stack: "64+8".to_owned(),
            }],
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let figures = figures("6.18.44-fc", 1234);
        assert_eq!(parse(&text(&figures)).expect("as it was written"), figures);
        parse("connect4\t1\t2\t3\n").expect_err("no kernel");
        rows("connect4\t1\ttwo\t3\n").expect_err("no number");
        rows("connect4\t1\n").expect_err("too few fields");
    }

    #[test]
    fn only_growth_on_the_same_release_is_a_failure() {
        let check = |kernel, before, now, expected: &[&str]| {
            let (_, grown) = compare(&figures("6.18.44-fc", now), Some(&figures(kernel, before)));
            assert_eq!(grown, expected, "{kernel}: from {before} to {now}");
        };
        check("6.18.1", 1000, 1100, &[]);
        check("6.18.1", 1000, 1101, &["connect4"]);
        check("6.18.1", 1000, 10, &[]);
        check("6.1.1", 1000, 2000, &[]);
        check("6.18.1", 0, 100, &["connect4"]);
    }

    #[test]
    fn both_figures_and_their_difference_are_shown() {
        let (table, _) = compare(&figures("6.18.44", 1100), Some(&figures("6.18.44", 1000)));
        for shown in ["connect4", "1100", "1000", "+10.0 %", "64+8", "the same release"] {
            assert!(table.contains(shown), "{shown} in\n{table}");
        }
        let (table, grown) = compare(&figures("6.18.44", 1100), None);
        assert!(table.contains("none") && grown.is_empty(), "{table}");
        let nothing = Figures {
            kernel: "6.18.44".to_owned(),
            rows: Vec::new(),
        };
        let (table, _) = compare(&nothing, Some(&figures("6.18.44", 1000)));
        assert!(table.contains("connect4 was there before"), "{table}");
    }
}
