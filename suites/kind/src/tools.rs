//! Finds Docker and kind, and runs their commands.

use std::{
    env,
    ffi::OsStr,
    path::PathBuf,
    process::{Output, Stdio},
    time::Duration,
};

use tokio::{process::Command, time::timeout};

use super::KindError;

/// Bytes of a failed command's output that are shown.
const SAID: usize = 2000;

/// kind's variable for the container runtime, and the only supported value.
const PROVIDER: (&str, &str) = ("KIND_EXPERIMENTAL_PROVIDER", "docker");
/// kind's variable for the Docker network, and its default.
const NETWORK: (&str, &str) = ("KIND_EXPERIMENTAL_DOCKER_NETWORK", "kind");

/// The Docker network of nodes that kind creates from this process.
pub(super) fn network() -> String {
    let configured = env::var(NETWORK.0).ok().filter(|name| !name.is_empty());
    configured.unwrap_or_else(|| NETWORK.1.to_owned())
}

/// A kind command for nodes in Docker, even if other runtimes exist.
pub(super) fn kind_on_docker(program: impl AsRef<OsStr>) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.env(PROVIDER.0, PROVIDER.1);
    command
}

/// Docker and kind.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    docker: PathBuf,
    kind: PathBuf,
}

impl Tools {
    /// Finds both, and checks that the Docker daemon answers.
    pub(super) async fn find() -> Result<Self, KindError> {
        let configured = env::var(PROVIDER.0)
            .ok()
            .filter(|configured| !configured.is_empty());
        if let Some(found) = configured.filter(|configured| configured != PROVIDER.1) {
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
            // Docker's client exits with 0 and prints nothing without a daemon.
            Ok(version) if !version.trim().is_empty() => Ok(tools),
            Ok(_) => Err(KindError::NoDaemon {
                why: "it has no version".to_owned(),
            }),
            Err(KindError::Command { why, .. }) => Err(KindError::NoDaemon { why }),
            Err(other) => Err(other),
        }
    }

    /// Programs at these paths.
    #[cfg(test)]
    pub(super) fn at(docker: PathBuf, kind: PathBuf) -> Self {
        Self { docker, kind }
    }

    /// Runs a Docker command; returns its stdout.
    pub(super) async fn docker<A: AsRef<OsStr>>(
        &self,
        what: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String, KindError> {
        let mut command = Command::new(&self.docker);
        command.args(arguments);
        run(what, command, super::LIMITS.docker).await
    }

    /// Runs a kind command; returns its stdout.
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

/// Finds a program on the PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Runs a command to its end; the error contains the end of its output.
async fn run(what: &str, mut command: Command, limit: Duration) -> Result<String, KindError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C reaches only this process, which undoes its steps in order.
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
        Err(failed(format!(
            "ended with {}: {}",
            output.status,
            output_end(&output)
        )))
    }
}

fn shown(command: &Command) -> String {
    let command = command.as_std();
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(OsStr::to_string_lossy));
    words.join(" ")
}

/// The end of its output, which contains the cause.
fn output_end(output: &Output) -> String {
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
