//! Checks the requirements of a target on this kernel and host before nodes are created.

use std::process::{Command, Stdio};

use cluster::{spawn, target::program::Need};
use tokio::time::timeout;

use super::{AgentCommand, LIMITS, LabError, error::io_error, netns::NetNs};

/// Runs the check of each requirement, in order, in one temporary network namespace.
///
/// # Errors
/// The first missing requirement.
pub(super) async fn check(agent: &AgentCommand) -> Result<(), LabError> {
    if agent.program.needs.is_empty() {
        return Ok(());
    }
    let (net, _links) = NetNs::create(&Vec::new()).await?;
    for Need { what, run } in &agent.program.needs {
        let missing = |why: String| LabError::MissingNeed {
            target: agent.label.clone(),
            need: what.clone(),
            tried: run.join(" "),
            why,
        };
        let [program, arguments @ ..] = run.as_slice() else {
            return Err(missing("there is no command that shows it".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let file = net.file().try_clone().map_err(io_error("share a namespace"))?;
        let placement = spawn::Placement {
            net: Some(file),
            ..Default::default()
        };
        let child = spawn::spawn(command, placement)
            .await
            .map_err(|error| missing(error.to_string()))?;
        let output = timeout(LIMITS.need, child.wait_with_output())
            .await
            .map_err(|_| missing(format!("it did not end within {:?}", LIMITS.need)))?
            .map_err(|error| missing(error.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let words: Vec<&str> = said.split_whitespace().collect();
            let silent = words.is_empty().then(|| format!("nothing ({})", output.status));
            return Err(missing(silent.unwrap_or_else(|| words.join(" "))));
        }
    }
    Ok(())
}
