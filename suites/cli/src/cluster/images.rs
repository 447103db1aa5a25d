//! `plumbline images`: the images that nodes run, for registries and for clusters without one.

use std::{fs, io::Write as _, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Subcommand;
use cluster::image::PROBE;

/// The images that a run needs.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
  plumbline images save probe.tar
  docker load -i probe.tar                          or podman load, ctr -n k8s.io images import
  kind load image-archive probe.tar
  skopeo copy docker-archive:probe.tar docker://REGISTRY/plumbline-probe:TAG")]
pub(crate) enum Command {
    /// Print the names of the images, one a line
    List(RegistryArgs),
    /// Write the images to an archive, without Docker. They contain this program, which must be static, for this
    /// architecture
    Save(SaveArgs),
}

/// Where images come from.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RegistryArgs {
    /// Registry, and folder in it, from which nodes pull images
    #[arg(long, value_name = "REGISTRY")]
    pub(super) registry: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SaveArgs {
    #[command(flatten)]
    registry: RegistryArgs,
    /// The archive; the file must not exist yet
    #[arg(value_name = "FILE")]
    to: PathBuf,
}

impl RegistryArgs {
    /// Name of the image of clients and backends.
    pub(super) fn probe(&self) -> String {
        self.name(PROBE.repository)
    }

    /// Name of the image of pods that make labs, which is made by suites/cli/deploy/lab.Containerfile.
    pub(super) fn lab(&self) -> String {
        self.name("plumbline-lab")
    }

    fn name(&self, repository: &str) -> String {
        let name = format!("{repository}:{}", env!("CARGO_PKG_VERSION"));
        match &self.registry {
            Some(registry) => format!("{}/{name}", registry.trim_end_matches('/')),
            None => name,
        }
    }
}

pub(crate) fn images(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List(registry) => println!("{}", registry.probe()),
        Command::Save(SaveArgs { registry, to }) => {
            let own = fs::read("/proc/self/exe").context("failed to read this program")?;
            let archive = PROBE.make(&own)?.archive(&registry.probe())?;
            let mut file = fs::File::create_new(to).with_context(|| {
                format!(
                    "failed to make {}; expected a file that is not there",
                    to.display()
                )
            })?;
            file.write_all(&archive)
                .with_context(|| format!("failed to write {}", to.display()))?;
            println!("{} is in {}", registry.probe(), to.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_registry() {
        let of = |registry: Option<&str>| {
            let registry = registry.map(str::to_owned);
            RegistryArgs { registry }.probe()
        };
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(of(None), format!("plumbline-probe:{version}"));
        assert_eq!(
            of(Some("r.example/x/")),
            format!("r.example/x/plumbline-probe:{version}")
        );
    }
}
