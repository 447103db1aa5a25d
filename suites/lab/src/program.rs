//! Paths of programs on this host: the project's, Kubernetes', and a target's with the programs that it calls.

use std::{
    env,
    path::{Path, PathBuf},
};

use cluster::target::program::Program;

use super::LabError;

/// Environment variable with the folder of Kubernetes' own programs, including kube-proxy.
pub const KUBERNETES: &str = "PLUMBLINE_KUBE_API";

/// Programs that replace the lab's own control plane.
pub(super) const CONTROL_PLANE: [&str; 3] = [ETCD, API_SERVER, CONTROLLERS];
/// The store.
pub(super) const ETCD: &str = "etcd";
/// The API server.
pub(super) const API_SERVER: &str = "kube-apiserver";
/// The controllers.
pub(super) const CONTROLLERS: &str = "kube-controller-manager";

/// A program beside the running one, where cargo and release archives put it.
///
/// # Errors
/// The program does not exist, or the running program's path can't be read.
pub fn sibling(name: &str) -> Result<PathBuf, LabError> {
    let own = std::env::current_exe().map_err(|error| LabError::Io {
        what: "read the path of the running program".to_owned(),
        error,
    })?;
    if own.file_name().is_some_and(|file| file == name) {
        return Ok(own);
    }
    // Test binaries and examples are one folder deeper than programs.
    let folders = own.ancestors().skip(1).take(2);
    let candidates: Vec<PathBuf> = folders.map(|folder| folder.join(name)).collect();
    candidates
        .iter()
        .find(|path| path.is_file())
        .cloned()
        .ok_or_else(|| LabError::MissingProgram {
            what: name.to_owned(),
            path: candidates
                .into_iter()
                .next()
                .unwrap_or_else(|| PathBuf::from(name)),
        })
}

/// Finds a program of a target: beside the running one, in the folder of Kubernetes' programs, or on the PATH.
pub(super) fn find(name: &str) -> Result<PathBuf, LabError> {
    let kubernetes = || {
        let program = Path::new(&env::var_os(KUBERNETES)?).join(name);
        program.is_file().then_some(program)
    };
    sibling(name).or_else(|_| {
        kubernetes()
            .or_else(|| on_path(name))
            .ok_or_else(|| LabError::NoProgram {
                program: name.to_owned(),
            })
    })
}

/// Checks that the programs that a target calls exist.
pub(super) fn check_tools(target: &Program, label: &str) -> Result<(), LabError> {
    match target.tools.iter().find(|tool| on_path(tool).is_none()) {
        None => Ok(()),
        Some(tool) => Err(LabError::MissingTool {
            target: label.to_owned(),
            tool: tool.clone(),
        }),
    }
}

/// Finds a program on the PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}
