//! One index of a Job, in its pod: the seed of that index, played as anywhere else, and then written to the log.

use std::{
    env, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, ensure};

use super::{
    super::run::{Generated, SweepArguments},
    archive,
};
use crate::run;

/// The Job controller sets it in each container.
const INDEX: &str = "JOB_COMPLETION_INDEX";
/// Tools of nodes that faults use. Without one of them its faults could not be made, and a seed would stand for another schedule than on
/// a host.
const TOOLS: [&str; 9] = [
    "sh", "cat", "find", "mount", "umount", "ip", "nft", "nsenter", "xargs",
];
/// Folder of the results in a pod: `emptyDir`s are mounted at /run and /tmp.
pub(super) const OUT: &str = "/tmp/out";

/// Plays the seed of this pod's index. Exit code 0 once its result is in the log, whatever it is: the Job counts what has been played.
pub(crate) async fn play(arguments: SweepArguments) -> anyhow::Result<ExitCode> {
    let SweepArguments {
        seeds, generated, on, ..
    } = arguments;
    let seed = seed(env::var(INDEX).ok().as_deref(), &seeds)?;
    let path = env::var_os("PATH").unwrap_or_default();
    expect_tools(&env::split_paths(&path).collect::<Vec<_>>())?;
    // Pods of a node share its hierarchy of cgroups, and labs are named by processes, whose numbers repeat in each pod.
    lab::own_hierarchy()?;
    let code = played(seed, &generated, on).await?;
    if code != ExitCode::SUCCESS && code != ExitCode::FAILURE {
        return Ok(code);
    }
    archive::write(Path::new(OUT), seed, &mut io::stdout().lock())
        .context("failed to hand over the result")?;
    Ok(ExitCode::SUCCESS)
}

async fn played(seed: u64, generated: &Generated, on: run::On) -> anyhow::Result<ExitCode> {
    run::run(run::Arguments::of_chaos(on, vec![generated.given(seed)])).await
}

/// # Errors
/// A tool is on none of these paths.
fn expect_tools(path: &[PathBuf]) -> anyhow::Result<()> {
    let is_missing = |tool: &&str| !path.iter().any(|folder| folder.join(tool).is_file());
    let missing: Vec<&str> = TOOLS.into_iter().filter(is_missing).collect();
    ensure!(
        missing.is_empty(),
        "the image has no {}: faults use them as tools of nodes; expected an image as suites/cli/deploy/lab.Containerfile makes it \
         (--image)",
        missing.join(", ")
    );
    Ok(())
}

fn seed(index: Option<&str>, seeds: &std::ops::Range<u64>) -> anyhow::Result<u64> {
    let index = index.and_then(|index| index.parse::<u64>().ok());
    let seed = index.and_then(|index| seeds.start.checked_add(index));
    seed.filter(|seed| seeds.contains(seed)).with_context(|| {
        format!(
            "expected an index of {} seeds in ${INDEX}, which a Job with completionMode: Indexed sets; `plumbline chaos sweep --job` makes it",
            seeds.end - seeds.start
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_image_without_the_tools_of_nodes_is_refused() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let path = [one.path().to_owned(), other.path().to_owned()];
        for (number, tool) in TOOLS.iter().enumerate() {
            let error = expect_tools(&path).unwrap_err().to_string();
            assert!(error.contains(&TOOLS[number..].join(", ")), "{error}");
            fs::write(path[number % 2].join(tool), "").unwrap();
        }
        assert!(expect_tools(&path).is_ok());
    }

    #[test]
    fn each_index_has_its_seed_and_nothing_else_has_one() {
        assert_eq!(seed(Some("0"), &(5..8)).unwrap(), 5);
        assert_eq!(seed(Some("2"), &(5..8)).unwrap(), 7);
        for wrong in [Some("3"), Some("x"), Some("-1"), Some(""), None] {
            let error = seed(wrong, &(5..8)).unwrap_err().to_string();
            assert!(error.contains("an index of 3 seeds"), "{wrong:?}: {error}");
        }
    }
}
