//! What can be said on the command line of `plumbline run`.

use std::{num::NonZero, path::PathBuf};

use harness::limits::Profile;
use lab::embedded::LabConfig;

use super::{exempt::Exemption, select::ClaimId, select::Feature};
use crate::lab::{FamilyArgs, TargetArgs};

/// What most rows of the catalogue ask for at most.
const NODES: u8 = 2;

/// Run cases and report.
///
/// Makes a cluster (the embedded lab: nodes, pods and an API server as namespaces of this host), runs the cases in
/// it, and takes it down.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0    nothing failed
  1    a case failed, or was inconclusive: its fault, control or fence was not seen, so it has shown nothing
  2    could not run
  130  interrupted
Cases that are skipped, not supported or exempt are listed with the reason, and are no pass.

Files in --out:
  report.yaml      all of it: `plumbline report` shows it again, and has its format
  report.html      the same for people: one file, which needs no network
  junit.xml        the same for CI
  evidence/CASE/   every write, version and probe (history.jsonl), objects, logs, dumps")]
pub(crate) struct Arguments {
    /// Only cases whose id or one of whose claims matches
    #[arg(long, value_name = "REGEX")]
    pub(super) filter: Option<regex::Regex>,
    /// Only cases that decide one of these claims of the catalogue (`plumbline list --claims`)
    #[arg(long, value_name = "CLAIM", value_delimiter = ',')]
    pub(super) claims: Vec<ClaimId>,
    /// Only cases that failed or were inconclusive in the last report in --out, with its seed. What comes of them goes to
    /// the folder `rerun` there: a second result, never a replacement
    #[arg(long, conflicts_with = "seed")]
    pub(super) rerun_failed: bool,
    /// Features that the target has, in place of those that it declares; `none` for none
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    pub(super) features: Option<Vec<Feature>>,
    /// A claim that the target is known not to keep, and why. Its cases run and are shown; they neither pass nor fail the
    /// run. Inconclusive ones do
    #[arg(long, value_name = "CLAIM=REASON")]
    pub(super) exempt: Vec<Exemption>,
    /// Folder for reports and evidence
    #[arg(long, default_value = "target/plumbline", value_name = "FOLDER")]
    pub(super) out: PathBuf,
    /// Use a running lab (`plumbline lab up`) instead of making one
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["target", "agent", "mutant", "ipv6", "dual", "nodes"])]
    pub(super) lab: Option<String>,
    /// Nodes of a lab that is made
    #[arg(long, value_name = "N", default_value_t = NODES,
          value_parser = clap::value_parser!(u8).range(1..=i64::from(LabConfig::MOST_NODES)))]
    pub(super) nodes: u8,
    #[command(flatten)]
    pub(super) families: FamilyArgs,
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// An agent with one known bug, from plumbline-mutant beside this program
    #[arg(long, value_name = "NAME", conflicts_with_all = ["target", "agent"])]
    pub(super) mutant: Option<String>,
    /// How many cases run side by side at most; the default is the number of processors
    #[arg(long, value_name = "N")]
    pub(super) jobs: Option<NonZero<usize>>,
    /// Limits for a lab, for a cluster of machines, or for negatives that hold for 10 min; printed by every run
    #[arg(long, value_name = "lab|cluster|long", default_value = "lab")]
    pub(super) profile: Profile,
    /// Multiplies all limits but T_hold, for a slow machine
    #[arg(long, default_value_t = 1.0, value_name = "X", value_parser = scale)]
    pub(super) timeout_scale: f64,
    /// Decides the order of variants and endpoints, and of cases with --shuffle; printed by every run
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Run cases in an order that the seed decides; those that disturb others are alone and last all the same
    #[arg(long)]
    pub(super) shuffle: bool,
    /// Begin no further case after one that fails the run; those that have begun end. The others are inconclusive
    #[arg(long)]
    pub(super) fail_fast: bool,
    /// Leave the cluster and the namespaces of the cases
    #[arg(long)]
    pub(super) keep: bool,
}

impl Arguments {
    /// Those that a single case needs to be run in the same way, as options of the command line.
    pub(super) fn options(&self) -> String {
        let mut options = self.families.options().to_owned();
        if self.nodes != NODES {
            options += &format!(" --nodes {}", self.nodes);
        }
        if self.profile != Profile::default() {
            options += &format!(" --profile {}", self.profile.name());
        }
        if self.timeout_scale > 1.0 {
            options += &format!(" --timeout-scale {}", self.timeout_scale);
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
        let claims: Vec<_> = said.claims.iter().map(|claim| claim.0.id).collect();
        assert_eq!(claims, ["clusterip-from-pod", "kubesvc-reachable"]);
        let features: Vec<_> = said
            .features
            .unwrap()
            .into_iter()
            .map(|feature| feature.0)
            .collect();
        assert_eq!(features, [Some("dual-stack".to_owned()), Some("sctp".to_owned())]);
        assert_eq!((said.nodes, said.profile), (3, Profile::Long));
        assert_eq!(said.exempt[0].reason, "not before May");
        assert!(said.shuffle && said.fail_fast && !said.keep);
        let plain = parse("").unwrap();
        assert!(plain.features.is_none());
        assert_eq!(plain.options(), "");
        let same = "--dual --nodes 3 --profile long --timeout-scale 2 --features none";
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
            ("--nodes 3 --lab x", "cannot be used"),
            ("--profile fast", "lab, cluster, long"),
            ("--rerun-failed --seed 1", "cannot be used"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
