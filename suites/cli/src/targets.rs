//! `plumbline targets`: lists, shows, installs and checks targets.

use std::{io::Write as _, path::Path, process::ExitCode};

use anyhow::Context as _;
use cases::claims;
use clap::Subcommand;
use cluster::target::{Api, Installation, Target};
use comfy_table::{Table, presets};

use crate::{COULD_NOT_RUN, suggestions::unknown};

mod script;

pub(crate) use script::{KindNodes, install, kind};

/// List, show, install and check targets.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the targets that this program contains, and where each runs
    List,
    /// Print the file of a target: how it is run and installed, its features and deviations. A start for your own
    Show {
        /// Name of a target
        #[arg(value_name = "NAME", value_parser = built_in)]
        file: &'static str,
    },
    /// Print the configuration of a kind cluster that a target can be installed on: three nodes, pod network,
    /// kube-proxy. `plumbline targets kind cilium | kind create cluster --name own --config -`
    Kind {
        /// Name of a target, or the path of its file
        #[arg(value_name = "NAME|FILE", value_parser = named)]
        target: String,
    },
    /// Print a script that installs a target on a cluster, and ends when its agents are ready on all nodes. `plumbline
    /// targets install cilium --api own-control-plane:6443 | sh`, in the root of this repository, with kubectl and helm
    /// configured for the cluster
    Install {
        /// Name of a target, or the path of its file
        #[arg(value_name = "NAME|FILE", value_parser = named)]
        target: String,
        /// Address where nodes reach an API server without a Service; IPv6 in brackets
        #[arg(long, value_name = "HOST:PORT", value_parser = script::api)]
        api: Api,
    },
    /// Check that files are targets: known fields, claims and features of the catalogue, steps that can run and always
    /// install the same. Exit code 0, or 2 with every problem
    Check {
        /// Names, or paths of files; the default is all targets that this program contains
        #[arg(value_name = "NAME|FILE", value_parser = named)]
        targets: Vec<String>,
    },
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let text = match command {
        Command::List => table()?,
        Command::Show { file } => (*file).to_owned(),
        Command::Kind { target } => script::kind(&installation(target)?, KindNodes::default()),
        Command::Install { target, api } => script::install(target, &installation(target)?, api)?,
        Command::Check { targets } => return Ok(check(targets)),
    };
    // The reader may close the pipe early.
    drop(std::io::stdout().write_all(text.as_bytes()));
    Ok(ExitCode::SUCCESS)
}

/// The name of a target on the command line, or the path of its file (anything with a `/` or a `.`).
///
/// # Errors
/// No target has this name; the error names similar ones.
pub(crate) fn named(text: &str) -> Result<String, String> {
    if text.contains(['/', '.']) {
        return Ok(text.to_owned());
    }
    let file = if Path::new(text).is_file() {
        format!("; the file of this name is ./{text}")
    } else {
        String::new()
    };
    built_in(text)
        .map(|_| text.to_owned())
        .map_err(|error| error + &file)
}

/// The file of a target that this program contains, by its name.
fn built_in(text: &str) -> Result<&'static str, String> {
    let file = Target::file(text);
    file.ok_or_else(|| unknown("target", text, Target::names(), "plumbline targets list"))
}

/// How a target is installed on a cluster.
///
/// # Errors
/// There is no such target, or its file does not say it.
pub(crate) fn installation(name: &str) -> anyhow::Result<Installation> {
    let target = Target::find(name)?;
    target.cluster.with_context(|| {
        format!(
            "expected a part `cluster` in the file of the target {name}, which says how it is installed; in the lab it runs without: \
             `plumbline run --target {name}`"
        )
    })
}

fn table() -> anyhow::Result<String> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "TARGET",
        "IN THE LAB",
        "ON A CLUSTER",
        "FEATURES",
        "DEVIATIONS",
    ]);
    for name in Target::names() {
        let target = Target::find(name)?;
        let cluster = target.cluster.map_or_else(
            || "no".to_owned(),
            |cluster| cluster.version.unwrap_or_else(|| "yes".to_owned()),
        );
        table.add_row([
            name,
            if target.lab.is_some() { "yes" } else { "no" },
            &cluster,
            &target.features.len().to_string(),
            &target.deviations.len().to_string(),
        ]);
    }
    Ok(format!("{table}\n"))
}

fn check(named: &[String]) -> ExitCode {
    let all: Vec<String> = Target::names().map(str::to_owned).collect();
    let mut wrong = false;
    for name in if named.is_empty() { &all } else { named } {
        let problems = problems(name);
        if problems.is_empty() {
            println!("{name}: a target");
        }
        for problem in problems {
            wrong = true;
            eprintln!("{name}: {problem}");
        }
    }
    ExitCode::from(if wrong { COULD_NOT_RUN } else { 0 })
}

/// Every problem of a target, by its name or the path of its file.
fn problems(name: &str) -> Vec<String> {
    let target = match Target::find(name) {
        Ok(target) => target,
        Err(error) => return vec![error.why],
    };
    let features = claims::features();
    let unknown = target
        .features
        .iter()
        .filter(|feature| !features.contains(feature.as_str()));
    let mut problems: Vec<String> = unknown
        .map(|feature| format!("no claim asks for the feature {feature} (`plumbline list --claims`)"))
        .collect();
    for deviation in &target.deviations {
        let claim = &deviation.claim;
        if claims::find(claim).is_none() {
            problems.push(format!("there is no claim {claim} (`plumbline list --claims`)"));
        }
        if deviation.reason.is_empty() || !deviation.link.starts_with("https://") {
            problems.push(format!(
                "expected a reason and a link of the deviation from {claim}, found '{}' and '{}'",
                deviation.reason, deviation.link
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_every_target_says_of_itself_is_in_the_catalogue() {
        for name in Target::names() {
            assert_eq!(problems(name), [""; 0], "{name}");
        }
    }

    #[test]
    fn all_are_listed_and_shown_as_files() {
        let table = table().unwrap();
        for name in Target::names() {
            assert!(
                table.lines().any(|line| line.trim_start().starts_with(name)),
                "{table}"
            );
            assert!(
                Target::file(name).unwrap().starts_with("# "),
                "{name} says what it is"
            );
        }
        assert_eq!(Target::file("no-such-target"), None);
    }

    #[test]
    fn a_name_that_no_target_has_is_answered_with_similar_ones() {
        assert_eq!(named("cilium"), Ok("cilium".to_owned()));
        assert_eq!(named("own.yaml"), Ok("own.yaml".to_owned()));
        assert_eq!(
            named("kube-proxy-nftable").unwrap_err(),
            "there is no target kube-proxy-nftable; did you mean kube-proxy-nftables or kube-proxy-iptables? `plumbline targets list` shows all"
        );
        assert!(
            built_in("./own.yaml").is_err(),
            "it can't be shown by this command"
        );
    }

    #[test]
    fn everything_that_is_wrong_with_a_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("own.yaml");
        let path = file.to_string_lossy();
        let lab = "lab: {program: p, run: [], cleanup: [], ready: {port: 1, path: /}}";
        fs::write(&file, lab).unwrap();
        assert_eq!(problems(&path), [""; 0]);
        let text = format!(
            "features: [teleport]\ndeviations: [{{claim: no-such-claim, reason: '', link: x}}]\n{lab}\n"
        );
        fs::write(&file, text).unwrap();
        let found = problems(&path);
        for part in ["feature teleport", "claim no-such-claim", "a reason and a link"] {
            assert!(
                found.iter().any(|problem| problem.contains(part)),
                "{part}: {found:?}"
            );
        }
        fs::write(&file, "lab: {}").unwrap();
        assert_eq!(problems(&path).len(), 1);
    }
}
