//! Docker and kind: found, or said how they are got; and one command of theirs.

use std::{
    env,
    ffi::OsStr,
    path::PathBuf,
    process::{Output, Stdio},
    time::Duration,
};

use tokio::{process::Command, time::timeout};

use super::KindError;

/// Bytes shown of what a failed command said.
const SAID: usize = 2000;

/// What runs kind's nodes, if it is told, and what this suite knows of.
const PROVIDER: (&str, &str) = ("KIND_EXPERIMENTAL_PROVIDER", "docker");
/// The network of kind's nodes, if it is told, and otherwise.
const NETWORK: (&str, &str) = ("KIND_EXPERIMENTAL_DOCKER_NETWORK", "kind");

/// The Docker network that kind puts nodes into which it makes for this process.
pub(super) fn network() -> String {
    let told = env::var(NETWORK.0).ok().filter(|name| !name.is_empty());
    told.unwrap_or_else(|| NETWORK.1.to_owned())
}

/// A command of kind's, with nodes that are containers of Docker's whatever else is there.
pub(super) fn kind_on_docker(program: impl AsRef<OsStr>) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.env(PROVIDER.0, PROVIDER.1);
    command
}

/// The programs.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    docker: PathBuf,
    kind: PathBuf,
}

impl Tools {
    /// Finds both, and asks whether the Docker daemon answers.
    pub(super) async fn find() -> Result<Self, KindError> {
        let told = env::var(PROVIDER.0).ok().filter(|told| !told.is_empty());
        if let Some(found) = told.filter(|told| told != PROVIDER.1) {
            return Err(KindError::Provider { found });
        }
        let tools = Self {
            docker: on_path("docker").ok_or(KindError::NoProgram {
                program: "docker",
                remedy: "install Docker: https://docs.docker.com/engine/install/",
            })?,
            kind: on_path("kind").ok_or(KindError::NoProgram {
                program: "kind",
                remedy: "install kind: https://kind.sigs.k8s.io/docs/user/quick-start/#installation \
                         (`go install sigs.k8s.io/kind@latest`)",
            })?,
        };
        let asked = tools
            .docker(
                "ask the Docker daemon",
                ["info", "--format", "{{.ServerVersion}}"],
            )
            .await;
        match asked {
            // The client of Docker ends well without a daemon, and says nothing.
            Ok(version) if !version.trim().is_empty() => Ok(tools),
            Ok(_) => Err(KindError::NoDaemon {
                why: "it has no version".to_owned(),
            }),
            Err(KindError::Command { why, .. }) => Err(KindError::NoDaemon { why }),
            Err(other) => Err(other),
        }
    }

    /// These programs, whatever they are.
    #[cfg(test)]
    pub(super) fn at(docker: PathBuf, kind: PathBuf) -> Self {
        Self { docker, kind }
    }

    /// A command of Docker's; returns what it printed.
    pub(super) async fn docker<A: AsRef<OsStr>>(
        &self,
        what: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String, KindError> {
        let mut command = Command::new(&self.docker);
        command.args(arguments);
        run(what, command, super::LIMITS.docker).await
    }

    /// A command of kind's; returns what it printed.
    pub(super) async fn kind<A: AsRef<OsStr>>(
        &self,
        what: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String, KindError> {
        let mut command = Command::from(kind_on_docker(&self.kind));
        command.args(arguments);
        run(what, command, super::LIMITS.kind).await
    }
}

/// A program on the PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Runs a command to its end; one that fails is an error with the end of what it said.
async fn run(what: &str, mut command: Command, limit: Duration) -> Result<String, KindError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is the caller's business: what was begun is undone in its order.
        .process_group(0)
        .kill_on_drop(true);
    let shown = shown(&command);
    let failed = |why: String| KindError::Command {
        what: what.to_owned(),
        command: shown.clone(),
        why,
    };
    let output = timeout(limit, command.output())
        .await
        .map_err(|_| failed(format!("did not end within {limit:?}")))?
        .map_err(|error| failed(format!("could not be started: {error}")))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(failed(format!("ended with {}: {}", output.status, said(&output))))
    }
}

fn shown(command: &Command) -> String {
    let command = command.as_std();
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(OsStr::to_string_lossy));
    words.join(" ")
}

/// The end of what it said, where the cause is.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let from = text.char_indices().rev().nth(SAID).map_or(0, |(at, _)| at);
    text[from..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_that_fails_says_which_it_was_and_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no space left >&2; exit 3"]);
        let error = run("make a thing", command, Duration::from_secs(10))
            .await
            .expect_err("it fails")
            .to_string();
        for part in [
            "failed to make a thing",
            "sh -c",
            "exit status: 3",
            "no space left",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let error = run("wait", command, Duration::from_millis(50))
            .await
            .expect_err("it hangs");
        assert!(error.to_string().contains("did not end within 50ms"), "{error}");
    }
}
