//! In containers, from the images of a release, on the host's network.

use std::{env, os::unix::net::UnixStream};

use testcontainers::{
    ContainerAsync, GenericImage, ImageExt, TestcontainersError,
    core::{Mount, client::ClientError},
    runners::AsyncRunner,
};

use super::{
    API_SERVER, CONTROLLERS, ETCD, Plane,
    owner::{OWNER, Owner, remove_orphans},
};

/// Where Docker listens unless `DOCKER_HOST` says otherwise.
const DOCKER: &str = "/var/run/docker.sock";

/// A program, what names another image of it, and upstream's.
const IMAGES: [(&str, &str, &str); 3] = [
    (ETCD, "PLUMBLINE_ETCD_IMAGE", "registry.k8s.io/etcd:3.6.8-0"),
    (
        API_SERVER,
        "PLUMBLINE_KUBE_APISERVER_IMAGE",
        "registry.k8s.io/kube-apiserver:v1.36.3",
    ),
    (
        CONTROLLERS,
        "PLUMBLINE_KUBE_CONTROLLER_MANAGER_IMAGE",
        "registry.k8s.io/kube-controller-manager:v1.36.3",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn its_images_answer_the_same() {
    if env::var_os("DOCKER_HOST").is_none()
        && let Err(error) = UnixStream::connect(DOCKER)
    {
        testing::skip(&testing::current(), &format!("no Docker at {DOCKER}: {error}"));
        return;
    }
    let Some(plane) = Plane::new() else {
        return;
    };
    remove_orphans().await;
    let mut running = Vec::new();
    for (program, variable, upstreams) in IMAGES {
        let arguments = match program {
            ETCD => plane.etcd("/plumbline-etcd"),
            API_SERVER => plane.api_server(),
            _ => plane.controllers(),
        };
        let image = env::var(variable).unwrap_or_else(|_| upstreams.to_owned());
        match start(&plane, program, &image, arguments).await {
            Ok(container) => running.push(container),
            Err(TestcontainersError::Client(ClientError::PullImage { err, .. })) => {
                let why = format!("no image {image}, which {variable} may name: {err}");
                testing::skip(&testing::current(), &why);
                return;
            }
            Err(error) => panic!("{image}: {error}"),
        }
        if program == API_SERVER {
            plane.serves().await;
        }
    }
    plane.is_controlled().await;
    plane.passes().await;
    for container in running {
        container.rm().await.expect("removed");
    }
}

async fn start(
    plane: &Plane,
    program: &str,
    image: &str,
    arguments: Vec<String>,
) -> Result<ContainerAsync<GenericImage>, TestcontainersError> {
    let (name, tag) = image
        .rsplit_once(':')
        .unwrap_or_else(|| panic!("expected NAME:TAG, found {image:?}"));
    let folder = plane.folder().display().to_string();
    GenericImage::new(name, tag)
        .with_entrypoint(program)
        .with_cmd(arguments)
        .with_network("host")
        .with_label(OWNER, Owner::this().to_string())
        .with_mount(Mount::bind_mount(folder.clone(), folder))
        .with_startup_timeout(crate::server::LIMIT)
        .start()
        .await
}
