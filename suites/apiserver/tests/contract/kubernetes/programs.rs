//! From a folder, as a release of Kubernetes and one of etcd have them.

use std::{
    env,
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::process::{Child, Command};

use super::{API_SERVER, CONTROLLERS, ETCD, Plane};

/// Names the folder.
const FOLDER: &str = "PLUMBLINE_KUBE_API";

/// The folder; `None`: there is none, and that has been said.
pub(super) fn folder() -> Option<PathBuf> {
    let folder = env::var_os(FOLDER).map(PathBuf::from);
    if folder.is_none() {
        let why = format!("{FOLDER} names no folder with Kubernetes' programs");
        testing::skip(&testing::current(), &why);
    }
    folder
}

/// Starts one of its programs. It ends with this process, however that ends.
pub(super) fn start(plane: &Plane, folder: &Path, program: &str, arguments: Vec<String>) -> Child {
    let log = File::create(plane.folder().join(format!("{program}.log"))).expect("a log");
    let path = folder.join(program);
    assert!(path.is_file(), "{FOLDER}={} has no {program}", folder.display());
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL"])
        .arg(path)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a descriptor"))
        .stderr(log)
        .kill_on_drop(true);
    command.spawn().expect("setpriv of util-linux")
}

#[tokio::test(flavor = "multi_thread")]
async fn its_programs_answer_the_same() {
    let Some(folder) = folder() else {
        return;
    };
    let Some(plane) = Plane::new() else {
        return;
    };
    let start = |program, arguments| start(&plane, &folder, program, arguments);
    let _etcd = start(ETCD, plane.etcd(&plane.file("data")));
    let _server = start(API_SERVER, plane.api_server());
    plane.serves().await;
    let _controllers = start(CONTROLLERS, plane.controllers());
    plane.is_controlled().await;
    plane.passes().await;
}
