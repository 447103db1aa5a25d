//! Where the program of a target is, and what it calls, on this host.

use std::{
    env,
    path::{Path, PathBuf},
};

use cluster::target::program::Program;

use super::{LabError, sibling};

/// Names a folder with Kubernetes' own programs, kube-proxy among them.
pub const KUBERNETES: &str = "PLUMBLINE_KUBE_API";

/// The program: beside the running one, in the folder of Kubernetes' programs, or on the PATH.
pub(super) fn find(target: &Program) -> Result<PathBuf, LabError> {
    let name = &target.program;
    let kubernetes = || {
        let program = Path::new(&env::var_os(KUBERNETES)?).join(name);
        program.is_file().then_some(program)
    };
    sibling(name).or_else(|_| {
        kubernetes()
            .or_else(|| on_path(name))
            .ok_or_else(|| LabError::NoProgram {
                program: name.clone(),
            })
    })
}

/// Whether what it calls is there.
pub(super) fn check_tools(target: &Program, label: &str) -> Result<(), LabError> {
    match target.tools.iter().find(|tool| on_path(tool).is_none()) {
        None => Ok(()),
        Some(tool) => Err(LabError::MissingTool {
            target: label.to_owned(),
            tool: tool.clone(),
        }),
    }
}

/// A program on the PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}
