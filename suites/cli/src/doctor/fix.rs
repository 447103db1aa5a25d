//! `plumbline doctor --fix`: shows the planned evictions and why, asks for confirmation, evicts, examines again.

use std::{
    io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin},
    process::ExitCode,
};

use anyhow::bail;
use doctor::{
    Examination,
    evict_stale::{Done, Eviction, Wanted, choose, heal},
    report::{Certainty, Report, SCHEMA},
};
use serde::Serialize;

use super::{Scope, code, look, problems::problems, show, text};
use crate::terminal;

/// What `--fix` evicts.
#[derive(Debug, clap::Args)]
pub(super) struct Fix {
    /// Evict programs that are certainly stale, after a confirmation
    #[arg(long)]
    fix: bool,
    /// With --fix: also evict programs that are suspected to be stale
    #[arg(long, requires = "fix")]
    suspected: bool,
    /// With --fix: also evict this program everywhere, whatever its owner and whether it is stale or not; repeatable
    #[arg(long, requires = "fix", value_name = "PROGRAM")]
    evict: Vec<u32>,
    /// With --fix: do not ask for confirmation
    #[arg(long, requires = "fix")]
    yes: bool,
}

/// What `--fix --json` prints. It shares the schema of a report.
#[derive(Debug, Serialize)]
struct Fixed<'a> {
    schema: u32,
    /// The report before the evictions.
    before: &'a Report,
    /// The evictions.
    done: Vec<Done>,
    /// The report after the evictions.
    after: &'a Report,
}

impl Fix {
    pub(super) const fn is_wanted(&self) -> bool {
        self.fix
    }
}

pub(super) async fn run(
    examination: &mut Examination,
    scope: &Scope,
    fix: &Fix,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let width = text::width();
    for program in &fix.evict {
        let attached = examination
            .report
            .attachments
            .iter()
            .any(|attachment| attachment.program == *program);
        if !attached {
            bail!("program {program} is attached nowhere that can be seen: nothing was evicted");
        }
    }
    let wanted = Wanted {
        suspected: fix.suspected,
        programs: fix.evict.clone(),
    };
    let chosen = choose(examination, &wanted);
    if !json {
        terminal::print(&plan(examination, &chosen, &wanted, width))?;
    }
    if !chosen.is_empty() && !fix.yes && !agreed(chosen.len())? {
        bail!("nothing was evicted");
    }
    let evicted = !chosen.is_empty();
    let done = heal(examination, chosen);
    let before = examination.report.clone();
    if evicted {
        *examination = look::look(scope.options(), before.services.is_some()).await?;
    }
    let after = &examination.report;
    if json {
        let fixed = Fixed {
            schema: SCHEMA,
            before: &before,
            done,
            after,
        };
        terminal::print(&format!("{}\n", serde_json::to_string_pretty(&fixed)?))?;
    } else {
        terminal::print(&result(&done, after, width))?;
    }
    Ok(code(after))
}

/// The planned evictions, and why.
fn plan(examination: &Examination, chosen: &[Eviction], wanted: &Wanted, width: u16) -> String {
    let mut shown = problems(&examination.report, None, width);
    if chosen.is_empty() {
        shown.push_str("Nothing to evict.\n");
    } else {
        shown += &format!("To evict ({}):\n", chosen.len());
    }
    for eviction in chosen {
        shown += &text::paragraph(&eviction.what, 2, width);
        for why in &eviction.why {
            shown += &text::paragraph(&format!("because {why}"), 4, width);
        }
    }
    let left = examination.report.attachments.iter().filter(|attachment| {
        let stale = attachment.stale.as_ref();
        stale.is_some_and(|stale| stale.certainty == Certainty::Suspected)
    });
    if !wanted.suspected && left.count() > 0 {
        shown.push_str("What is only suspected to be stale is left; --suspected evicts it, too.\n");
    }
    shown
}

/// Asks for confirmation on the terminal.
fn agreed(count: usize) -> anyhow::Result<bool> {
    if !stdin().is_terminal() {
        bail!("nothing was evicted: there is no terminal to ask on; say --yes if that is to be done");
    }
    write!(stderr(), "Evict {count}? [y/N] ")?;
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The result of the evictions.
fn result(done: &[Done], after: &Report, width: u16) -> String {
    let mut shown = String::new();
    for one in done {
        let said = match &one.failed {
            None => format!("done: {}", one.eviction.what),
            Some(error) => format!("FAILED: {}: {error}", one.eviction.what),
        };
        shown += &text::paragraph(&said, 0, width);
    }
    if !done.is_empty() {
        shown.push_str("\nLooked again:\n");
    }
    shown + &problems(after, None, width) + &show::verdict(after, width)
}
