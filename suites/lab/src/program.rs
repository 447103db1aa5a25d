//! Where programs are on this host: those of the project, of Kubernetes, and of a target, with what that calls.

use std::{
    env,
    path::{Path, PathBuf},
};

use cluster::target::program::Program;

use super::LabError;

/// Names a folder with Kubernetes' own programs, kube-proxy among them.
pub const KUBERNETES: &str = "PLUMBLINE_KUBE_API";

/// What a folder of programs has to have that run in place of the lab's own API servers.
pub(super) const CONTROL_PLANE: [&str; 3] = [ETCD, API_SERVER, CONTROLLERS];
/// The store.
pub(super) const ETCD: &str = "etcd";
/// The API server.
pub(super) const API_SERVER: &str = "kube-apiserver";
/// The controllers.
pub(super) const CONTROLLERS: &str = "kube-controller-manager";

/// A program beside the running one: where cargo, and an archive of ours, put them.
///
/// # Errors
/// There is none, or the running program's own path can't be read.
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
