//! Options of `plumbline run`.

use std::{num::NonZero, path::PathBuf};

use anyhow::bail;
use harness::{evidence::Evidence, limits::Profile};
use lab::{Advertise, ControlPlane, LabConfig};

use super::{exempt::Exemption, filter::Filter, select::ClaimArgument, select::Feature};
use crate::{
    cluster::{ExistingArgs, KindArgs, Provider},
    lab::{FamilyArgs, TargetArgs, programs},
    terminal::OutputArgs,
};

/// Most rows of the catalogue need no more nodes.
const NODES: u8 = 2;

/// An inconclusive case is tried once more.
const TRIES: u8 = 2;

/// A case that stays inconclusive for so many tries needs another machine.
pub(super) const MOST_TRIES: u8 = 5;

/// Run cases and report.
///
/// Makes clusters (embedded labs: nodes, pods and an API server as namespaces of this host), runs the cases in them,
/// and removes them; or runs the cases in an existing cluster (--provider existing), and removes what it has made
/// there.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0    nothing failed
  1    a case failed, or was inconclusive: its fault, control or fence was not seen, so it has shown nothing
  2    could not run; or nothing failed, but not all was undone or written
  130  interrupted
Cases that are skipped, not supported or exempt are listed with the reason, and are no pass.

Files in --out:
  report.yaml      all of it: `plumbline report` shows it again, and has its format
  report.html      the same for people: one file, which needs no network
  junit.xml        the same for CI
  evidence/CASE/   history.jsonl.gz (every write, version, phase and fault; of probes, how many ended how in each phase)
                   and timeline.yaml. Of a case that did not pass, or with --evidence all, besides: every probe
                   (attempts.jsonl.gz), objects, logs, dumps, the large ones compressed: `zcat FILE | less`.
                   evidence/CASE.1/ is that of its first try, if it was tried again
Paths in reports are relative to the folder of the report.")]
pub(crate) struct Arguments {
    /// Only this case, or the cases of a claim or of an area (its letter or name); any other text is a regular
    /// expression for ids of cases and claims. A claim that is judged over other cases (`stale-no-reboot`) selects all of
    /// them: with some of them it can fail, but never pass
    #[arg(long, value_name = "ID|CLAIM|AREA|REGEX")]
    pub(super) filter: Option<Filter>,
    /// Only cases that decide one of these claims of the catalogue (`plumbline list --claims`)
    #[arg(long, value_name = "CLAIM", value_delimiter = ',')]
    pub(super) claims: Vec<ClaimArgument>,
    /// Only cases that failed or were inconclusive in the last report in --out, with its seed. The results go to the
    /// folder `rerun` there: a second result, which replaces nothing
    #[arg(long, conflicts_with = "seed")]
    pub(super) rerun_failed: bool,
    /// Features of the target, instead of those that it declares; `none` for none
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    pub(super) features: Option<Vec<Feature>>,
    /// A claim that the target is known not to keep, and why. Its cases run and are shown, but neither pass nor fail
    /// the run. Inconclusive ones fail it
    #[arg(long, value_name = "CLAIM=REASON")]
    pub(super) exempt: Vec<Exemption>,
    /// A quick check during development, and no conformance, as every line of its output states: one axis of each row,
    /// chosen by the seed, a hold time of 3 s, and the fewest probes that show a set. Cases whose claims take longer
    /// are skipped
    #[arg(long, conflicts_with_all = ["profile", "rerun_failed"])]
    pub(super) quick: bool,
    /// Folder for reports and evidence [default: target/plumbline, with --quick target/plumbline-quick]
    #[arg(long, value_name = "FOLDER")]
    pub(super) out: Option<PathBuf>,
    /// Which cases keep full evidence, up to 100 MB each. The others keep a summary
    #[arg(long, default_value_t = Evidence::Failed, value_name = "failed|all")]
    pub(super) evidence: Evidence,
    /// Where to run: in new labs, in an existing cluster, or in a new kind cluster
    #[arg(long, value_enum, default_value_t)]
    pub(super) provider: Provider,
    #[command(flatten)]
    pub(super) existing: ExistingArgs,
    #[command(flatten)]
    pub(super) kind: KindArgs,
    /// Use a running lab (`plumbline lab up`) instead of making one
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["target", "agent", "mutant", "ipv6", "dual", "nodes"])]
    pub(super) lab: Option<String>,
    /// Number of nodes of a new lab
    #[arg(long, value_name = "N", default_value_t = NODES,
          value_parser = clap::value_parser!(u8).range(1..=i64::from(LabConfig::MOST_NODES)))]
    pub(super) nodes: u8,
    /// Folder with etcd, kube-apiserver and kube-controller-manager, which new labs run instead of their own control
    /// plane. Two kube-apiservers advertise one address; cases that need wrong answers of API servers are skipped
    #[arg(long, value_name = "FOLDER", conflicts_with = "lab")]
    pub(super) control_plane: Option<PathBuf>,
    #[command(flatten)]
    pub(super) families: FamilyArgs,
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Test an agent with one known bug, from plumbline-mutant beside this program
    #[arg(long, value_name = "NAME", conflicts_with_all = ["target", "agent"])]
    pub(super) mutant: Option<String>,
    /// Limit of concurrent labs. Each disruptive case has a new lab of its own; all others share one. The default
    /// depends on processors and memory
    #[arg(long, value_name = "N", conflicts_with = "lab")]
    pub(super) labs: Option<NonZero<usize>>,
    /// Number of concurrent cases. Defaults: in labs two for each processor, and up to twelve while a fifth of the
    /// machine is idle; in a kind cluster one for every two processors; in an existing cluster one for each
    /// processor of its weakest node; on clusters up to three times as many while nodes are idle (existing ones with
    /// --tier node); one with --tier namespaced
    #[arg(long, value_name = "N")]
    pub(super) jobs: Option<NonZero<usize>>,
    /// Limits for a lab, for a cluster of machines, or with a hold time of 10 min; every run prints them. The default
    /// depends on the provider
    #[arg(long, value_name = "lab|cluster|long", value_parser = profile)]
    pub(super) profile: Option<Profile>,
    /// Factor for all limits but the hold time, for a slow machine
    #[arg(long, default_value_t = 1.0, value_name = "X", value_parser = scale)]
    pub(super) timeout_scale: f64,
    /// Limit of probes that each client starts in a second, at most the profile's. With --provider kind, whose clients
    /// share this machine, the default depends on its processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rate: Option<u32>,
    /// Seed for the order of variants and endpoints, and for the order of cases with --shuffle; every run prints it
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Start cases in an order that the seed decides, instead of the longest first; disruptive ones still run alone in
    /// their labs
    #[arg(long)]
    pub(super) shuffle: bool,
    /// Start no further case after one that fails the run; running ones finish. The others are inconclusive
    #[arg(long)]
    pub(super) fail_fast: bool,
    /// Limit of tries of an inconclusive case, which a busy machine can cause. The last try decides, and reports name
    /// the earlier ones. At most a quarter of the cases are tried again, after the waiting ones; a failed case never is
    #[arg(long, value_name = "N", default_value_t = TRIES, value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_TRIES)))]
    pub(super) tries: u8,
    /// Leave the labs and the namespaces of the cases: one lab for each disruptive case, so select few. In a cluster
    /// that all cases share, only namespaces of cases that did not pass stay, because a node runs at most 110 pods
    #[arg(long)]
    pub(super) keep: bool,
    #[command(flatten, next_help_heading = "Output")]
    pub(super) output: OutputArgs,
}

/// API servers of a new lab: cases that stop one of several need two.
const API_SERVERS: u8 = 2;

impl Arguments {
    /// Refuses options of one provider with another.
    ///
    /// # Errors
    /// Some options are of another provider.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let existing = self.existing.options();
        if let Some(option) = self
            .kind
            .first_option()
            .filter(|_| self.provider != Provider::Kind)
        {
            bail!("expected --provider kind with {option}, which is about a cluster of kind");
        }
        if self.quick && self.provider == Provider::Existing {
            bail!("expected --provider lab or kind with --quick: its limits are those of this machine");
        }
        match self.provider {
            Provider::Lab | Provider::Kind if !existing.is_empty() => {
                bail!("expected --provider existing with{existing}")
            }
            Provider::Lab => Ok(()),
            Provider::Kind => {
                let of_labs = [
                    (self.lab.is_some(), "--lab"),
                    (self.mutant.is_some(), "--mutant"),
                    (self.labs.is_some(), "--labs"),
                    (self.control_plane.is_some(), "--control-plane"),
                ];
                let given = of_labs.iter().find(|(is_given, _)| *is_given);
                given.map_or(Ok(()), |(_, name)| bail!("expected --provider lab with {name}"))
            }
            Provider::Existing => {
                let of_labs = [
                    (self.lab.is_some(), "--lab"),
                    (self.mutant.is_some(), "--mutant"),
                    (self.labs.is_some(), "--labs"),
                    (self.control_plane.is_some(), "--control-plane"),
                    (self.nodes != NODES, "--nodes"),
                    (!self.families.options().is_empty(), "--ipv6 and --dual"),
                    (self.target.has_program(), "--agent"),
                ];
                let given = of_labs.iter().find(|(is_given, _)| *is_given);
                given.map_or(Ok(()), |(_, name)| {
                    bail!("expected --provider lab with {name}: a cluster that is there is tested as it is")
                })
            }
        }
    }

    /// The profile of the limits.
    pub(super) fn profile(&self) -> Profile {
        self.profile.unwrap_or(match self.provider {
            _ if self.quick => Profile::Quick,
            Provider::Lab | Provider::Kind => Profile::Lab,
            Provider::Existing => Profile::Cluster,
        })
    }

    /// Folder for reports and evidence: a quick run does not overwrite the results of another.
    pub(super) fn out(&self) -> PathBuf {
        let end = if self.quick { "-quick" } else { "" };
        let default = || format!("target/plumbline{end}").into();
        self.out.clone().unwrap_or_else(default)
    }

    /// The control plane of a new lab. Its own API servers advertise their own addresses until a case changes that;
    /// kube-apiservers get the addresses at their start.
    ///
    /// # Errors
    /// The folder is missing.
    pub(super) fn control_plane(&self) -> anyhow::Result<ControlPlane> {
        let programs = self.control_plane.as_deref().map(programs).transpose()?;
        Ok(ControlPlane {
            servers: API_SERVERS,
            advertise: match programs {
                Some(_) => Advertise::Shared,
                None => Advertise::Own,
            },
            programs,
        })
    }

    /// The options that a single case needs to run in the same way, as text.
    pub(super) fn options(&self) -> String {
        let mut options = self.families.options().to_owned();
        if self.nodes != NODES {
            options += &format!(" --nodes {}", self.nodes);
        }
        if let Some(folder) = &self.control_plane {
            options += &format!(" --control-plane {}", folder.display());
        }
        if let Some(profile) = self.profile {
            options += &format!(" --profile {}", profile.name());
        }
        if self.quick {
            options += " --quick";
        }
        if self.timeout_scale > 1.0 {
            options += &format!(" --timeout-scale {}", self.timeout_scale);
        }
        if let Some(rate) = self.rate {
            options += &format!(" --rate {rate}");
        }
        if self.evidence == Evidence::All {
            options += " --evidence all";
        }
        let features: Vec<&str> = self
            .features
            .iter()
            .flatten()
            .map(|feature| feature.0.as_deref().unwrap_or("none"))
            .collect();
        if !features.is_empty() {
            options += &format!(" --features {}", features.join(","));
        }
        options
    }
}

/// Profiles that have no option of their own.
fn profile(text: &str) -> Result<Profile, String> {
    match text.parse() {
        Ok(Profile::Quick) => Err("expected --quick, without --profile".to_owned()),
        other => other,
    }
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if (1.0..=100.0).contains(&scale) => Ok(scale),
        _ => Err(
            "expected a number from 1 to 100: limits are the catalogue's, and may only be lengthened".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        run: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, String> {
        let words = line.split_whitespace().map(|word| word.replace('_', " "));
        Line::try_parse_from(["run".to_owned()].into_iter().chain(words))
            .map(|line| line.run)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn options_of_one_provider_are_refused_by_the_other() {
        let refused = |line: &str| parse(line).unwrap().check().unwrap_err().to_string();
        assert!(parse("").unwrap().check().is_ok());
        assert!(refused("--image i").contains("--provider existing"));
        assert!(refused("--provider kind --image i").contains("--provider existing"));
        assert!(refused("--reuse k").contains("--provider kind"));
        assert!(refused("--pod-network agent").contains("--provider kind"));
        assert!(refused("--apiservers 2").contains("--provider kind with --apiservers"));
        assert!(refused("--provider kind --mutant m").contains("--provider lab"));
        assert!(
            parse("--provider kind --reuse k --nodes 3 --dual")
                .unwrap()
                .check()
                .is_ok()
        );
        assert!(refused("--provider existing --quick").contains("--provider lab or kind with --quick"));
        let existing = "--provider existing --kubeconfig k --image i";
        assert!(parse(existing).unwrap().check().is_ok());
        for option in ["--lab l", "--dual", "--agent a", "--nodes 3", "--mutant m"] {
            assert!(
                refused(&format!("{existing} {option}")).contains("as it is"),
                "{option}"
            );
        }
    }

    #[test]
    fn limits_follow_from_the_provider() {
        let of = |line: &str| parse(line).unwrap().profile();
        assert_eq!(of(""), Profile::Lab);
        assert_eq!(of("--provider existing"), Profile::Cluster);
        assert_eq!(of("--provider existing --profile long"), Profile::Long);
        assert_eq!(of("--quick --provider kind"), Profile::Quick);
    }

    #[test]
    fn limits_may_only_be_lengthened() {
        assert_eq!(scale("1.5"), Ok(1.5));
        assert!(scale("0.5").is_err() && scale("NaN").is_err() && scale("x").is_err());
    }

    #[test]
    fn what_is_said_is_understood() {
        let said = parse(
            "--claims clusterip-from-pod,kubesvc-reachable --features dual-stack,sctp --nodes 3 --profile long \
             --exempt slice-union=not_before_May --shuffle --fail-fast",
        )
        .unwrap();
        let claims: Vec<_> = said.claims.iter().map(|claim| claim.0.id.as_str()).collect();
        assert_eq!(claims, ["clusterip-from-pod", "kubesvc-reachable"]);
        let features: Vec<_> = said
            .features
            .unwrap()
            .into_iter()
            .map(|feature| feature.0)
            .collect();
        assert_eq!(features, [Some("dual-stack".to_owned()), Some("sctp".to_owned())]);
        assert_eq!((said.nodes, said.profile), (3, Some(Profile::Long)));
        assert_eq!(said.exempt[0].reason, "not before May");
        assert!(said.shuffle && said.fail_fast && !said.keep);
        let plain = parse("").unwrap();
        assert_eq!((plain.tries, parse("--tries 1").unwrap().tries), (2, 1));
        assert!(plain.features.is_none());
        assert_eq!(plain.options(), "");
        assert_eq!(plain.out(), Path::new("target/plumbline"));
        let quick = parse("--quick").unwrap();
        assert_eq!(
            (quick.options(), quick.out()),
            (" --quick".to_owned(), "target/plumbline-quick".into())
        );
        assert_eq!(parse("--quick --out o").unwrap().out(), Path::new("o"));
        assert_eq!(plain.control_plane().unwrap().advertise, Advertise::Own);
        let same = "--dual --nodes 3 --control-plane /usr/bin --profile long --timeout-scale 2 --rate 50 --evidence all --features none";
        assert_eq!(parse(same).unwrap().options(), format!(" {same}"));
    }

    #[test]
    fn what_can_not_be_meant_is_refused_with_what_was_expected() {
        for (line, part) in [
            ("--claims no-such-claim", "plumbline list --claims"),
            ("--features no-such-feature", "dual-stack"),
            ("--exempt slice-union", "CLAIM=REASON"),
            ("--exempt slice-union=", "CLAIM=REASON"),
            ("--exempt no-such-claim=why", "plumbline list --claims"),
            ("--nodes 0", "1..=9"),
            ("--nodes 10", "1..=9"),
            ("--tries 0", "1..=5"),
            ("--evidence none", "failed or all"),
            ("--nodes 3 --lab x", "cannot be used"),
            ("--labs 2 --lab x", "cannot be used"),
            ("--labs 0", "zero"),
            ("--profile fast", "lab, cluster, long"),
            ("--rerun-failed --seed 1", "cannot be used"),
            ("--quick --profile lab", "cannot be used"),
            ("--quick --rerun-failed", "cannot be used"),
            ("--profile quick", "expected --quick"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
