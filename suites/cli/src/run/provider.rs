//! Which provider a run uses and why: `--provider`, or else what the other options name.

use std::env;

use anyhow::bail;
use cluster::target::Target;

use super::arguments::{Arguments, OptionOf};
use crate::cluster::Provider;

/// Programs that a kind cluster needs.
const OF_KIND: [&str; 2] = ["docker", "kind"];

/// The provider of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    provider: Provider,
    /// The reason: a clause.
    because: String,
    /// What the run prints about a provider that no option names.
    header: Option<String>,
}

/// What decides besides the options.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// Programs of [`OF_KIND`] that are not on the PATH.
    missing: Vec<&'static str>,
    /// Whether `$KUBECONFIG` names a file.
    has_kubeconfig: bool,
}

impl Surroundings {
    /// Those of this process.
    pub(super) fn now() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders: Vec<_> = env::split_paths(&path).collect();
        let is_there = |name: &str| folders.iter().any(|folder| folder.join(name).is_file());
        Self {
            missing: OF_KIND.into_iter().filter(|name| !is_there(name)).collect(),
            has_kubeconfig: env::var_os("KUBECONFIG").is_some_and(|files| !files.is_empty()),
        }
    }
}

impl Choice {
    /// Chooses the provider, and checks that no option is of another one.
    ///
    /// # Errors
    /// Options contradict each other; there is no such target; the target needs a cluster that nothing names.
    pub(super) fn new(arguments: &Arguments, around: &Surroundings) -> anyhow::Result<Self> {
        let choice = match arguments.provider {
            Some(provider) => Self {
                provider,
                because: format!("--provider {} is given", provider.name()),
                header: None,
            },
            None => Self::inferred(arguments, around)?,
        };
        choice.check(arguments)?;
        Ok(choice)
    }

    pub(super) fn provider(&self) -> Provider {
        self.provider
    }

    /// Where the run is, why, and how to choose otherwise. `None` if `--provider` says so.
    pub(super) fn header(&self) -> Option<&str> {
        self.header.as_deref()
    }

    /// Where the cases run, and why.
    pub(super) fn place(&self) -> String {
        if let Some(header) = self.header() {
            return header.to_owned();
        }
        let place = match self.provider {
            Provider::Lab => "in labs of this host",
            Provider::Kind => "in a kind cluster",
            Provider::Existing => "in a cluster that is there",
        };
        format!("{place}, as {}", self.because)
    }

    fn inferred(arguments: &Arguments, around: &Surroundings) -> anyhow::Result<Self> {
        if let Some(option) = arguments.existing.connection_option() {
            return Ok(Self {
                provider: Provider::Existing,
                because: format!("{option} names a cluster"),
                header: Some(format!(
                    "in the cluster that {option} names (--provider lab or kind, without it: in a new one)"
                )),
            });
        }
        if let Some(option) = arguments.first_option(OptionOf::Existing) {
            bail!(
                "{option} is for a cluster that is there, and no option names one: add --kubeconfig FILE, or --provider existing \
                 for the cluster of $KUBECONFIG or ~/.kube/config"
            );
        }
        if let Some(option) = arguments.first_option(OptionOf::Kind) {
            return Ok(Self {
                provider: Provider::Kind,
                because: format!("{option} is for kind"),
                header: Some(format!(
                    "in a kind cluster, as {option} is for one (--provider lab, without it: in a lab of this host)"
                )),
            });
        }
        if arguments.first_option(OptionOf::Lab).is_none() && needs_a_cluster(arguments)? {
            return Self::of_installed(arguments.target.name(), around);
        }
        let because = match arguments.first_option(OptionOf::Lab) {
            Some(option) => format!("{option} is for the lab"),
            None => "no option names a cluster".to_owned(),
        };
        let alone = if around.has_kubeconfig {
            "; $KUBECONFIG alone is not used"
        } else {
            ""
        };
        Ok(Self {
            header: Some(format!(
                "in a lab of this host, as {because}{alone} (--provider kind: in Docker; --kubeconfig FILE: in a cluster that is \
                 there)"
            )),
            provider: Provider::Lab,
            because,
        })
    }

    /// The provider of a target that no lab can run.
    fn of_installed(target: &str, around: &Surroundings) -> anyhow::Result<Self> {
        if !around.missing.is_empty() {
            bail!(
                "the target {target} runs on a cluster alone (its file has no part `lab`), no option names a cluster, and a new \
                 one needs {}, not on the PATH: install what is missing or, where {target} is installed, `plumbline run --kubeconfig FILE \
                 --target {target}`",
                around.missing.join(" and ")
            );
        }
        Ok(Self {
            provider: Provider::Kind,
            because: format!("the target {target} runs on a cluster alone"),
            header: Some(format!(
                "in a new kind cluster, as the target {target} runs on a cluster alone (--kubeconfig FILE: in one where it is \
                 installed)"
            )),
        })
    }

    /// # Errors
    /// An option is of another provider.
    fn check(&self, arguments: &Arguments) -> anyhow::Result<()> {
        let because = &self.because;
        let others: &[OptionOf] = match self.provider {
            Provider::Lab => &[OptionOf::Existing, OptionOf::Kind],
            Provider::Kind => &[OptionOf::Existing, OptionOf::Lab],
            Provider::Existing => &[OptionOf::Kind, OptionOf::Lab, OptionOf::New],
        };
        for other in others {
            if let Some(option) = arguments.first_option(*other) {
                bail!(
                    "{option} is for {}, and {because}: leave one of the two out",
                    other.place()
                );
            }
        }
        let is_made = arguments.lab.is_none() && arguments.mutant.is_none();
        if self.provider == Provider::Lab && is_made && needs_a_cluster(arguments)? {
            let target = arguments.target.name();
            bail!(
                "the target {target} runs on a cluster alone (its file has no part `lab`), and {because}: `plumbline run \
                 --provider kind --target {target}`"
            );
        }
        if arguments.which.quick && self.provider == Provider::Existing {
            bail!(
                "--quick is for the lab and kind, as its limits are those of this machine, and {because}: leave --quick out, and \
                 name a few cases instead (`plumbline list`)"
            );
        }
        Ok(())
    }
}

/// Whether the target that the options name can't run in a lab.
fn needs_a_cluster(arguments: &Arguments) -> anyhow::Result<bool> {
    let target = Target::find(arguments.target.name())?;
    Ok(target.lab.is_none() && target.cluster.is_some())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::run::arguments::tests::parse;

    /// A host with Docker and kind.
    pub(in crate::run) const ALL: Surroundings = Surroundings {
        missing: Vec::new(),
        has_kubeconfig: false,
    };

    fn chosen(line: &str, around: &Surroundings) -> Result<(Provider, String), String> {
        let choice = Choice::new(&parse(line).unwrap(), around);
        choice
            .map(|choice| (choice.provider(), choice.header().unwrap_or_default().to_owned()))
            .map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn what_the_options_name_decides_and_the_run_says_so() {
        for (line, provider, said) in [
            (
                "",
                Provider::Lab,
                "in a lab of this host, as no option names a cluster (--provider kind:",
            ),
            (
                "--target kube-proxy-nftables",
                Provider::Lab,
                "as no option names a cluster",
            ),
            ("--mutant m", Provider::Lab, "as --mutant is for the lab"),
            (
                "--target cilium",
                Provider::Kind,
                "as the target cilium runs on a cluster alone (--kubeconfig FILE",
            ),
            ("--reuse k", Provider::Kind, "as --reuse is for one"),
            (
                "--kubernetes 1.36.1",
                Provider::Kind,
                "as --kubernetes is for one",
            ),
            (
                "--kubeconfig k",
                Provider::Existing,
                "in the cluster that --kubeconfig names",
            ),
            (
                "--context c --target cilium",
                Provider::Existing,
                "in the cluster that --context names",
            ),
            ("--provider lab", Provider::Lab, ""),
            ("--provider existing --image i", Provider::Existing, ""),
            ("--provider kind --reuse k --nodes 3 --dual", Provider::Kind, ""),
        ] {
            let (found, header) = chosen(line, &ALL).unwrap();
            assert_eq!(found, provider, "{line}");
            assert!(
                header.contains(said) && header.is_empty() == said.is_empty(),
                "{line}: {header}"
            );
        }
    }

    #[test]
    fn a_variable_never_names_the_cluster_of_a_run() {
        let around = Surroundings {
            has_kubeconfig: true,
            ..ALL
        };
        let (provider, header) = chosen("", &around).unwrap();
        assert_eq!(provider, Provider::Lab);
        assert!(header.contains("; $KUBECONFIG alone is not used"), "{header}");
        let error = chosen("--tier node", &around).unwrap_err();
        assert!(
            error.contains("add --kubeconfig FILE, or --provider existing"),
            "{error}"
        );
    }

    #[test]
    fn a_target_of_clusters_alone_needs_one() {
        let around = Surroundings {
            missing: vec!["kind"],
            ..ALL
        };
        let error = chosen("--target cilium", &around).unwrap_err();
        for part in [
            "needs kind, not on the PATH",
            "plumbline run --kubeconfig FILE --target cilium",
        ] {
            assert!(error.contains(part), "{error}");
        }
        assert!(chosen("--target cilium --kubeconfig k", &around).is_ok());
    }

    #[test]
    fn a_target_of_clusters_alone_is_refused_in_the_lab_with_the_command_for_kind() {
        for (line, because) in [
            ("--provider lab --target cilium", "--provider lab is given"),
            ("--labs 2 --target cilium", "--labs is for the lab"),
        ] {
            let error = chosen(line, &ALL).unwrap_err();
            let end = format!("and {because}: `plumbline run --provider kind --target cilium`");
            assert!(error.ends_with(&end), "{error}");
        }
    }

    #[test]
    fn options_of_two_providers_are_refused_with_both_names() {
        for (line, option, because) in [
            (
                "--provider lab --image i",
                "--image is for a cluster that is there",
                "--provider lab is given",
            ),
            (
                "--provider kind --image i",
                "--image is for a cluster that is there",
                "--provider kind is given",
            ),
            (
                "--provider kind --mutant m",
                "--mutant is for the lab",
                "--provider kind is given",
            ),
            (
                "--provider kind --agent a",
                "--agent is for the lab",
                "--provider kind is given",
            ),
            (
                "--provider lab --reuse k",
                "--reuse is for kind",
                "--provider lab is given",
            ),
            (
                "--kubeconfig k --pod-network agent",
                "--pod-network is for kind",
                "--kubeconfig names a cluster",
            ),
            (
                "--kubeconfig k --lab l",
                "--lab is for the lab",
                "--kubeconfig names a cluster",
            ),
            (
                "--kubeconfig k --agent a",
                "--agent is for the lab",
                "--kubeconfig names a cluster",
            ),
            (
                "--kubeconfig k --nodes 3",
                "--nodes is for a new cluster",
                "--kubeconfig names a cluster",
            ),
            (
                "--kubeconfig k --dual",
                "--dual is for a new cluster",
                "--kubeconfig names a cluster",
            ),
            (
                "--reuse k --mutant m",
                "--mutant is for the lab",
                "--reuse is for kind",
            ),
            (
                "--provider existing --quick",
                "--quick is for the lab and kind",
                "--provider existing is given",
            ),
        ] {
            let error = chosen(line, &ALL).unwrap_err();
            assert!(error.starts_with(option), "{line}: {error}");
            assert!(
                error.contains(&format!("and {because}: leave")),
                "{line}: {error}"
            );
        }
    }
}
