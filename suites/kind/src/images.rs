//! Images of the project's programs on nodes, and in Docker for containers beside the nodes.

use std::{fs, io::Write as _, path::Path};

use cluster::image::{Image, ImageError};
use tempfile::NamedTempFile;

use super::{KindError, containers::Container, error::io_error, tools::Tools};

/// An image in a temporary file, which is deleted with the value.
#[derive(Debug)]
pub(super) struct Archive {
    /// Its name. The tag is derived from the content, so an existing image needs no new load.
    pub(super) name: String,
    file: NamedTempFile,
}

/// Digits of an image's id in its tag, as Docker shows ids.
const TAG: usize = 12;

impl Archive {
    /// Builds an image of a program.
    pub(super) fn make(image: &Image, program: &Path) -> Result<Self, KindError> {
        let bytes = fs::read(program).map_err(io_error(format!("read {}", program.display())))?;
        let unmade = |error| match error {
            ImageError::NotStatic => KindError::NotStatic {
                program: program.display().to_string(),
            },
            ImageError::Archive(error) => io_error(format!("make the image {}", image.repository))(error),
        };
        let made = image.make(&bytes).map_err(unmade)?;
        let id = made.id();
        let name = format!("{}:{}", image.repository, id.get(..TAG).unwrap_or(&id));
        let archive = made.archive(&name).map_err(unmade)?;
        let failed = || {
            io_error(format!(
                "write the archive of {name} into the folder for temporary files"
            ))
        };
        let mut file = NamedTempFile::new().map_err(failed())?;
        file.write_all(&archive).map_err(failed())?;
        Ok(Self { name, file })
    }

    /// Loads it into Docker.
    pub(super) async fn load_into_docker(&self, tools: &Tools) -> Result<(), KindError> {
        let place = "Docker";
        let arguments = [
            "load".as_ref(),
            "--quiet".as_ref(),
            "--input".as_ref(),
            self.path(),
        ];
        let loaded = tools.docker(&self.what(place), arguments).await;
        loaded
            .map(drop)
            .map_err(|error| self.not_loaded(place, "docker system df", error))
    }

    /// Loads it into the nodes of a cluster, unless all of them have it.
    pub(super) async fn load_into_nodes(
        &self,
        tools: &Tools,
        cluster: &str,
        nodes: &[Container],
    ) -> Result<(), KindError> {
        if self.is_everywhere(tools, nodes).await {
            return Ok(());
        }
        let place = format!("the nodes of {cluster}");
        let mut arguments = ["load", "image-archive", "--name", cluster]
            .map(AsRef::as_ref)
            .to_vec();
        arguments.push(self.path());
        let loaded = tools.kind(&self.what(&place), arguments).await;
        let look = format!("docker exec {cluster}-control-plane df -h /var");
        loaded
            .map(drop)
            .map_err(|error| self.not_loaded(&place, &look, error))
    }

    async fn is_everywhere(&self, tools: &Tools, nodes: &[Container]) -> bool {
        for node in nodes {
            let arguments = ["exec", &node.name, "crictl", "inspecti", "--quiet", &self.name];
            if tools.docker("look for an image", arguments).await.is_err() {
                return false;
            }
        }
        true
    }

    fn path(&self) -> &std::ffi::OsStr {
        self.file.path().as_os_str()
    }

    fn what(&self, place: &str) -> String {
        format!("load the image {} into {place}", self.name)
    }

    fn not_loaded(&self, place: &str, look: &str, error: KindError) -> KindError {
        KindError::NotLoaded {
            image: self.name.clone(),
            place: place.to_owned(),
            look: look.to_owned(),
            error: Box::new(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use testing::elf::static_program;

    use super::*;

    const IMAGE: Image = Image {
        repository: "plumbline-test",
        program: "/tiny",
        arguments: &["first"],
        user: "65532:65532",
    };

    /// Docker, if it runs; otherwise the test is reported as skipped.
    async fn docker() -> Option<Tools> {
        let found = Tools::find().await;
        if let Err(error) = &found {
            testing::skip(&testing::current(), &error.to_string());
        }
        found.ok()
    }

    fn program(folder: &Path, name: &str, bytes: &[u8]) -> std::path::PathBuf {
        let path = folder.join(name);
        fs::write(&path, bytes).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("so");
        path
    }

    #[tokio::test]
    async fn docker_takes_an_image_as_it_is_made_and_named_by_its_content() {
        let Some(tools) = docker().await else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let tiny = program(folder.path(), "tiny", &static_program());
        let archive = Archive::make(&IMAGE, &tiny).expect("an image");
        let again = Archive::make(&IMAGE, &tiny).expect("the same image");
        assert_eq!(archive.name, again.name);
        archive.load_into_docker(&tools).await.expect("it takes it");
        let name = &archive.name;
        let entry = ["inspect", "--format", "{{json .Config.Entrypoint}}", name];
        let entry = tools.docker("look at the image", entry).await;
        tools
            .docker("remove the image", ["rmi", "--force", name])
            .await
            .expect("it can go");
        assert_eq!(entry.expect("it is there").trim(), r#"["/tiny","first"]"#);
    }

    #[test]
    fn a_program_that_is_not_static_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = program(folder.path(), "script", b"#!/bin/sh\n");
        let refused = Archive::make(&IMAGE, &script)
            .expect_err("not static")
            .to_string();
        assert!(
            refused.contains("script is not static") && refused.contains("cargo xtask"),
            "{refused}"
        );
    }

    #[tokio::test]
    async fn an_image_that_nodes_do_not_take_is_named_with_what_they_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let says = b"#!/bin/sh\necho 'ctr: write: no space left on device' >&2; exit 1\n";
        let tools = Tools::at(
            program(folder.path(), "docker", says),
            program(folder.path(), "kind", says),
        );
        let tiny = program(folder.path(), "tiny", &static_program());
        let archive = Archive::make(&IMAGE, &tiny).expect("an image");
        let node = Container {
            image: String::new(),
            name: "c-control-plane".to_owned(),
            is_control_plane: true,
            pid: 1,
            network: "kind".to_owned(),
            addresses: Vec::new(),
            cgroup: folder.path().to_owned(),
            cgroup_root: folder.path().to_owned(),
            bpffs: folder.path().to_owned(),
        };
        let nodes = archive.load_into_nodes(&tools, "c", &[node]).await;
        let beside = archive.load_into_docker(&tools).await;
        for (done, look) in [
            (nodes, "docker exec c-control-plane df -h /var"),
            (beside, "docker system df"),
        ] {
            let message = done.expect_err("it fails").to_string();
            for part in [&archive.name, "no space left on device", look] {
                assert!(message.contains(part), "{part:?} is not in {message}");
            }
        }
    }
}
