//! A run of chaos in pods of any cluster: the cluster and the image, and the options of the command in each pod.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, bail, ensure};
use cluster::target::Target;
use harness::limits::Limits;
use scenarios::chaos::CASE;

use super::{Arguments, ChaosRun, arguments::OptionOf};
use crate::{
    cluster::{Compute, Provider},
    terminal::OutputArgs,
};

/// Time of a pod besides its cases: its image is pulled, its lab comes up and goes down.
const AROUND: Duration = Duration::from_secs(600);

/// A run in pods.
#[derive(Debug)]
pub(crate) struct InPods {
    pub(crate) compute: Compute,
    /// Options of the command in a pod, as in its image.
    pub(crate) options: Vec<String>,
    /// Options that play a seed on this host.
    replayed: String,
    /// Limit of pods at once.
    pub(crate) at_once: Option<u32>,
    pub(crate) limits: Limits,
    /// Limit of a pod.
    pub(crate) longest: Duration,
    pub(crate) tries: u32,
    /// Folder for reports and evidence.
    pub(crate) out: PathBuf,
    pub(crate) output: OutputArgs,
}

impl InPods {
    /// The command that plays a seed again, on this host.
    pub(crate) fn replay(&self, run: &ChaosRun) -> String {
        format!("plumbline chaos {}{}", run.replay, self.replayed)
    }
}

impl Arguments {
    /// The same run in pods of the cluster that the options name, each with a lab.
    ///
    /// # Errors
    /// An option is for this host alone, or the target can't run in a lab.
    pub(crate) fn in_pods(mut self) -> anyhow::Result<InPods> {
        let for_this_host = [
            (self.provider.is_some(), "--provider"),
            (self.lab.is_some(), "--lab"),
            (self.control_plane.is_some(), "--control-plane"),
            (self.jobs.is_some(), "--jobs"),
            (self.keep, "--keep"),
            (self.fail_fast, "--fail-fast"),
            (self.shuffle, "--shuffle"),
        ];
        let given = for_this_host
            .into_iter()
            .find_map(|(is, name)| is.then_some(name));
        if let Some(option) = given.or_else(|| self.first_option(OptionOf::Kind)) {
            bail!(
                "{option} is for a run on this host, and --job is given: each pod makes a lab of its own, which goes with it; leave \
                 one of the two out"
            );
        }
        if self.mutant.is_none() {
            let name = self.target.name();
            ensure!(
                Target::find(name)?.lab.is_some(),
                "the target {name} runs on a cluster alone (its file has no part `lab`), and pods of --job make labs"
            );
        }
        let seed = self.on.seed_or_random();
        let profile = self.profile(Provider::Lab);
        let limits = Limits::of(profile).scaled(self.timeout_scale);
        let tries = u32::from(self.tries);
        let once = limits.longest(CASE.longest) + limits.closing + limits.process;
        let same = self.options();
        let words = shlex::split(&same).context("an option has a quotation mark")?;
        let mut options = words;
        options.extend(self.target.in_image());
        if let Some(name) = &self.mutant {
            options.extend(["--mutant".to_owned(), name.clone()]);
        }
        for exemption in &self.exempt {
            options.extend([
                "--exempt".to_owned(),
                format!("{}={}", exemption.claim, exemption.reason),
            ]);
        }
        options.extend(["--tries".to_owned(), tries.to_string()]);
        options.extend(["--seed".to_owned(), seed.to_string()]);
        let of_target = match &self.mutant {
            Some(name) => format!(" --mutant {name}"),
            None => self.target.options(),
        };
        let out = self.out();
        let on = self.on;
        Ok(InPods {
            compute: on.existing.compute()?,
            options,
            replayed: of_target + &same,
            at_once: on.labs.map(|labs| u32::try_from(labs.get()).unwrap_or(u32::MAX)),
            limits,
            longest: AROUND + once * tries,
            tries,
            out,
            output: on.output,
        })
    }
}

#[cfg(test)]
mod tests {
    use scenarios::chaos::Given;

    use super::{super::arguments::tests::parse, *};

    fn in_pods(line: &str) -> Result<InPods, String> {
        let mut arguments = parse(line).unwrap();
        arguments.chaos = vec![run()];
        arguments.in_pods().map_err(|error| format!("{error:#}"))
    }

    fn run() -> ChaosRun {
        ChaosRun {
            id: "chaos-7",
            given: Given::Seed {
                seed: 7,
                lasts_ms: 60_000,
                kinds: None,
            },
            replay: "run --seed 7 --for 60s".to_owned(),
        }
    }

    #[test]
    fn a_pod_gets_the_options_of_the_lab_and_the_files_of_its_image() {
        let found = in_pods(
            "--kubeconfig k --nodes 3 --dual --mutant m --exempt slice-relabelled=known --tries 1 --seed 5 --labs 9 --evidence all",
        )
        .unwrap();
        assert_eq!(
            found.options.join(" "),
            "--dual --nodes 3 --evidence all --mutant m --exempt slice-relabelled=known --tries 1 --seed 5"
        );
        assert_eq!((found.at_once, found.tries), (Some(9), 1));
        assert_eq!(
            found.replay(&run()),
            "plumbline chaos run --seed 7 --for 60s --mutant m --dual --nodes 3 --evidence all"
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("own.yaml");
        std::fs::write(&file, Target::file("reference").unwrap()).unwrap();
        let own = in_pods(&format!(
            "--target {} --agent ./some/agent --seed 5",
            file.display()
        ))
        .unwrap();
        assert_eq!(
            own.options.join(" "),
            "--target /own.yaml --agent /agent --tries 2 --seed 5"
        );
        assert!(
            own.replay(&run())
                .contains(&format!("--target {}", file.display()))
        );
        assert_eq!(own.out, PathBuf::from("target/plumbline-chaos"));
    }

    #[test]
    fn what_only_this_host_can_do_is_refused() {
        for (line, option) in [
            ("--provider lab", "--provider"),
            ("--lab l", "--lab"),
            ("--keep", "--keep"),
            ("--jobs 3", "--jobs"),
            ("--fail-fast", "--fail-fast"),
            ("--reuse k", "--reuse"),
            ("--tier node", "--tier"),
            ("--target cilium", "runs on a cluster alone"),
            ("--image-pull-secret s", "--namespace"),
        ] {
            let error = in_pods(line).unwrap_err();
            assert!(error.contains(option), "{line}: {error}");
        }
        assert!(in_pods("--image-pull-secret s --namespace n").is_ok());
    }
}
