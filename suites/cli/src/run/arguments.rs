//! Options of `plumbline run`.

use std::{num::NonZero, ops::Deref, path::PathBuf, time::Duration};

use harness::{case::Case, evidence::Evidence, limits::Profile};
use lab::{Advertise, ControlPlane, LabConfig};
use scenarios::chaos::{CASE, Given};

use super::{exempt::Exemption, filter::Filter, select::ClaimArgument, select::Feature};
use crate::{
    catalogue::CataloguePart,
    cluster::{ExistingArgs, KindArgs, Provider},
    lab::{FamilyArgs, TargetArgs, programs},
    terminal::OutputArgs,
};

/// Headings of the help.
const WHICH: &str = "Which cases";
const WHERE: &str = "Where";
const NEW: &str = "A new lab (or kind cluster)";
const TARGET: &str = "The target";
const HOW: &str = "How the cases run";
const RESULTS: &str = "Results, and what stays";

/// Most rows of the catalogue need no more nodes.
const NODES: u8 = 2;

/// An inconclusive case is tried once more.
const TRIES: u8 = 2;

/// A case that stays inconclusive for so many tries needs another machine.
pub(super) const MOST_TRIES: u8 = 5;

/// Run cases and report.
///
/// The cases run in labs (nodes, pods and an API server as namespaces of this host, made and removed in seconds), in a
/// new kind cluster, on which the target is installed by the steps of its file, or in a cluster that is there. Without
/// --provider the other options decide, and the first line of the output says where, why, and how to choose otherwise.
/// Everything that a run makes is removed at its end.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  plumbline run release-prefix-null-slice --dry-run
      what one case would do, where, and how long
  sudo plumbline run A --skip agent-restart
      the cases of an area with the reference agent, without some
  sudo plumbline run --provider kind --target ./own.yaml --kubernetes 1.36.1
      an implementation of your own, in a new kind cluster
  plumbline run --kubeconfig FILE --tier node --target ./own.yaml
      the same in a cluster where it is installed

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
    #[command(flatten)]
    pub(super) which: Which,
    #[command(flatten)]
    pub(super) on: On,
    /// Runs of chaos in place of cases of the catalogue.
    #[arg(skip)]
    pub(super) chaos: Vec<ChaosRun>,
}

/// Which cases of the catalogue run, and whether for a verdict.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Which {
    /// Only this case, the cases of a claim, or those of an area (its letter or name); several are added up. `plumbline
    /// list` shows all. A claim that is judged over other cases (`stale-no-reboot`) selects all of them: with some of
    /// them it can fail, but never pass
    #[arg(value_name = "CASE|CLAIM|AREA", help_heading = WHICH)]
    pub(super) parts: Vec<CataloguePart>,
    /// Only cases with an id or a claim that matches this regular expression; a name is taken as such
    #[arg(long, value_name = "EXPR", help_heading = WHICH)]
    pub(super) filter: Option<Filter>,
    /// Leave out cases that match this name or regular expression; repeatable
    #[arg(long, value_name = "EXPR", help_heading = WHICH)]
    pub(super) skip: Vec<Filter>,
    /// Only cases that decide one of these claims of the catalogue (`plumbline list --claims`)
    #[arg(long, value_name = "CLAIM", value_delimiter = ',', help_heading = WHICH)]
    pub(super) claims: Vec<ClaimArgument>,
    /// Only cases that failed or were inconclusive in the last report in --out, with its seed. The results go to the
    /// folder `rerun` there: a second result, which replaces nothing
    #[arg(long, conflicts_with = "seed", help_heading = WHICH)]
    pub(super) rerun_failed: bool,
    /// Show what would run, where, about how long, what is left out and why, and what the run would touch; make and
    /// change nothing
    #[arg(long, help_heading = HOW)]
    pub(super) dry_run: bool,
    /// A quick check during development, and no conformance, as every line of its output states: one axis of each row,
    /// chosen by the seed, a hold time of 3 s, and the fewest probes that show a set. Cases whose claims take longer
    /// are skipped
    #[arg(long, conflicts_with_all = ["profile", "rerun_failed"], help_heading = HOW)]
    pub(super) quick: bool,
}

/// Where they run, with which target, how, and what stays.
#[derive(Debug, clap::Args)]
pub(crate) struct On {
    /// Features of the target, instead of those that it declares; `none` for none
    #[arg(long, value_name = "FEATURE", value_delimiter = ',', help_heading = TARGET)]
    pub(super) features: Option<Vec<Feature>>,
    /// A claim that the target is known not to keep, and why. Its cases run and are shown, but neither pass nor fail
    /// the run. Inconclusive ones fail it
    #[arg(long, value_name = "CLAIM=REASON", help_heading = TARGET)]
    pub(super) exempt: Vec<Exemption>,
    /// Folder for reports and evidence [default: target/plumbline, with --quick target/plumbline-quick]
    #[arg(long, value_name = "FOLDER", help_heading = RESULTS)]
    pub(super) out: Option<PathBuf>,
    /// Which cases keep full evidence, up to 100 MB each. The others keep a summary
    #[arg(long, default_value_t = Evidence::Failed, value_name = "failed|all", help_heading = RESULTS)]
    pub(super) evidence: Evidence,
    /// Where to run. The default follows from the other options: --kubeconfig or --context name a cluster that is there
    /// ($KUBECONFIG alone does not); a target that runs on a cluster alone gets a kind cluster; all others run in labs
    #[arg(long, value_enum, help_heading = WHERE)]
    pub(super) provider: Option<Provider>,
    #[command(flatten)]
    pub(super) existing: ExistingArgs,
    #[command(flatten)]
    pub(super) kind: KindArgs,
    /// Use a running lab (`plumbline lab up`) instead of making one
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["target", "agent", "mutant", "ipv6", "dual", "nodes"], help_heading = NEW)]
    pub(super) lab: Option<String>,
    /// Number of nodes of a new lab or kind cluster [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(LabConfig::MOST_NODES)), help_heading = NEW)]
    pub(super) nodes: Option<u8>,
    /// Folder with etcd, kube-apiserver and kube-controller-manager, which new labs run instead of their own control
    /// plane. Two kube-apiservers advertise one address; cases that need wrong answers of API servers are skipped
    #[arg(long, value_name = "FOLDER", conflicts_with = "lab", help_heading = NEW)]
    pub(super) control_plane: Option<PathBuf>,
    #[command(flatten)]
    pub(super) families: FamilyArgs,
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Test an agent with one known bug, from plumbline-mutant beside this program
    #[arg(long, value_name = "NAME", conflicts_with_all = ["target", "agent"], help_heading = TARGET)]
    pub(super) mutant: Option<String>,
    /// Limit of concurrent labs. Each disruptive case has a new lab of its own; all others share one. The default
    /// depends on processors and memory
    #[arg(long, value_name = "N", conflicts_with = "lab", help_heading = NEW)]
    pub(super) labs: Option<NonZero<usize>>,
    /// Number of concurrent cases. Defaults: in labs two for each processor, and up to twelve while a fifth of the
    /// machine is idle; in a kind cluster one for every two processors, and up to eight times as many while the
    /// machine is idle; in an existing cluster one for each processor of its weakest node, and with --tier node up to
    /// three times as many while nodes are idle; one with --tier namespaced
    #[arg(long, value_name = "N", help_heading = HOW)]
    pub(super) jobs: Option<NonZero<usize>>,
    /// Limits for a lab, for a cluster of machines, or with a hold time of 10 min; every run prints them. The default
    /// depends on the provider
    #[arg(long, value_name = "lab|cluster|long", value_parser = profile, help_heading = HOW)]
    pub(super) profile: Option<Profile>,
    /// Factor for all limits but the hold time, for a slow machine
    #[arg(long, default_value_t = 1.0, value_name = "X", value_parser = scale, help_heading = HOW)]
    pub(super) timeout_scale: f64,
    /// Limit of probes that each client starts in a second, at most the profile's. With --provider kind, whose clients
    /// share this machine, the default depends on its processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = HOW)]
    pub(super) rate: Option<u32>,
    /// Seed for the order of variants and endpoints, and for the order of cases with --shuffle; every run prints it
    #[arg(long, value_name = "N", help_heading = HOW)]
    pub(super) seed: Option<u64>,
    /// Start cases in an order that the seed decides, instead of the longest first; disruptive ones still run alone in
    /// their labs
    #[arg(long, help_heading = HOW)]
    pub(super) shuffle: bool,
    /// Start no further case after one that fails the run; running ones finish. The others are inconclusive
    #[arg(long, help_heading = HOW)]
    pub(super) fail_fast: bool,
    /// Limit of tries of an inconclusive case, which a busy machine can cause. The last try decides, and reports name
    /// the earlier ones. At most a quarter of the cases are tried again, after the waiting ones; a failed case never is
    #[arg(long, value_name = "N", default_value_t = TRIES, value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_TRIES)), help_heading = HOW)]
    pub(super) tries: u8,
    /// Leave the labs and the namespaces of the cases: one lab for each disruptive case, so select few. In a cluster
    /// that all cases share, only namespaces of cases that did not pass stay, because a node runs at most 110 pods
    #[arg(long, help_heading = RESULTS)]
    pub(super) keep: bool,
    #[command(flatten, next_help_heading = "Output")]
    pub(super) output: OutputArgs,
}

/// A run of chaos.
#[derive(Clone, Debug)]
pub(crate) struct ChaosRun {
    /// Id of its case.
    pub(crate) id: &'static str,
    /// What it plays.
    pub(crate) given: Given,
    /// The options that play it again, without those of the target.
    pub(crate) replay: String,
}

impl ChaosRun {
    /// Its seed.
    pub(crate) fn seed(&self) -> u64 {
        self.given.seed()
    }

    /// Its case.
    pub(super) fn case(&self) -> Case {
        let lasts = Duration::from_millis(self.given.lasts_ms().into());
        Case {
            id: self.id,
            takes_at_least: lasts,
            ..CASE
        }
    }
}

impl On {
    /// The seed; one by chance from now on, if none was given.
    pub(crate) fn seed_or_random(&mut self) -> u64 {
        // Short enough to be typed again.
        *self.seed.get_or_insert_with(|| rand::random::<u32>().into())
    }
}

impl Deref for Arguments {
    type Target = On;

    fn deref(&self) -> &On {
        &self.on
    }
}

/// API servers of a new lab: cases that stop one of several need two.
const API_SERVERS: u8 = 2;

/// Whose option it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionOf {
    /// Of labs alone.
    Lab,
    /// Of kind clusters alone.
    Kind,
    /// Of existing clusters alone.
    Existing,
    /// Of clusters that the run makes.
    New,
}

impl OptionOf {
    /// What the option is for.
    pub(super) fn place(self) -> &'static str {
        match self {
            Self::Lab => "the lab",
            Self::Kind => "kind",
            Self::Existing => "a cluster that is there",
            Self::New => "a new cluster",
        }
    }
}

impl Arguments {
    /// Runs of chaos in place of cases.
    pub(crate) fn of_chaos(on: On, chaos: Vec<ChaosRun>) -> Self {
        Self {
            which: Which::default(),
            on,
            chaos,
        }
    }

    /// The first given option that only these have.
    pub(super) fn first_option(&self, of: OptionOf) -> Option<&'static str> {
        let given = match of {
            OptionOf::Lab => vec![
                (self.lab.is_some(), "--lab"),
                (self.mutant.is_some(), "--mutant"),
                (self.labs.is_some(), "--labs"),
                (self.control_plane.is_some(), "--control-plane"),
                (self.target.has_program(), "--agent"),
            ],
            OptionOf::Kind => return self.kind.first_option(),
            OptionOf::Existing => return self.existing.first_option(),
            OptionOf::New => {
                let families = self.families.options().trim_start();
                let all = ["--ipv6", "--dual"];
                let found = all.into_iter().find(|option| *option == families);
                vec![
                    (self.nodes.is_some(), "--nodes"),
                    (found.is_some(), found.unwrap_or_default()),
                ]
            }
        };
        given
            .into_iter()
            .find_map(|(is_given, name)| is_given.then_some(name))
    }

    /// Number of nodes of a new cluster.
    pub(super) fn nodes(&self) -> u8 {
        self.nodes.unwrap_or(NODES)
    }

    /// The profile of the limits.
    pub(super) fn profile(&self, provider: Provider) -> Profile {
        self.profile.unwrap_or(match provider {
            _ if self.which.quick => Profile::Quick,
            Provider::Lab | Provider::Kind => Profile::Lab,
            Provider::Existing => Profile::Cluster,
        })
    }

    /// Folder for reports and evidence: a quick run does not overwrite the results of another.
    pub(super) fn out(&self) -> PathBuf {
        let end = match () {
            () if self.which.quick => "-quick",
            () if !self.chaos.is_empty() => "-chaos",
            () => "",
        };
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
        if let Some(nodes) = self.nodes {
            options += &format!(" --nodes {nodes}");
        }
        if let Some(folder) = &self.control_plane {
            options += &format!(" --control-plane {}", folder.display());
        }
        if let Some(profile) = self.profile {
            options += &format!(" --profile {}", profile.name());
        }
        if self.which.quick {
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
pub(super) mod tests {
    use std::path::Path;

    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        run: Arguments,
    }

    /// The arguments of a command line; `_` stands for a space in a word.
    pub(in crate::run) fn parse(line: &str) -> Result<Arguments, String> {
        let words = line.split_whitespace().map(|word| word.replace('_', " "));
        Line::try_parse_from(["run".to_owned()].into_iter().chain(words))
            .map(|line| line.run)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn limits_follow_from_the_provider() {
        let of = |line: &str, provider| parse(line).unwrap().profile(provider);
        assert_eq!(of("", Provider::Lab), Profile::Lab);
        assert_eq!(of("", Provider::Kind), Profile::Lab);
        assert_eq!(of("", Provider::Existing), Profile::Cluster);
        assert_eq!(of("--profile long", Provider::Existing), Profile::Long);
        assert_eq!(of("--quick", Provider::Kind), Profile::Quick);
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
        let claims: Vec<_> = said
            .which
            .claims
            .iter()
            .map(|claim| claim.0.id.as_str())
            .collect();
        assert_eq!(claims, ["clusterip-from-pod", "kubesvc-reachable"]);
        assert_eq!((said.nodes(), said.profile), (3, Some(Profile::Long)));
        let features = said.features.iter().flatten().map(|feature| feature.0.clone());
        let features: Vec<_> = features.collect();
        assert_eq!(features, [Some("dual-stack".to_owned()), Some("sctp".to_owned())]);
        assert_eq!(parse("").unwrap().nodes(), 2);
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
