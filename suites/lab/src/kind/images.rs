//! Images of our own programs: FROM scratch, each one static program, made and loaded without a registry.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use tempfile::TempDir;

use super::{KindError, error::io_error, tools::Tools};

/// `e_phoff` of a 64-bit ELF header, `e_phentsize` and `e_phnum`, and the type of a segment that names an interpreter
/// (elf(5)).
const PROGRAM_HEADERS: (usize, usize, usize) = (0x20, 0x36, 0x38);
const PT_INTERP: u32 = 3;

/// An image that is made from one program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipe {
    /// Its repository, without a registry.
    repository: &'static str,
    /// File name of the program in it.
    program: &'static str,
    /// What follows the program in its entry point.
    arguments: &'static [&'static str],
}

/// What pods of the suite run.
pub(super) const PROBE: Recipe = Recipe {
    repository: "plumbline-probe",
    program: "plumbline",
    arguments: &["probe"],
};

/// The agent.
pub(super) const AGENT: Recipe = Recipe {
    repository: "plumbline-reference-agent",
    program: "reference-agent",
    arguments: &[],
};

impl Recipe {
    /// Makes the image, and returns its name. The tag is the image's content: nodes that have it need nothing.
    pub(super) async fn build(&self, tools: &Tools, program: &Path) -> Result<String, KindError> {
        let bytes = fs::read(program).map_err(io_error(format!("read {}", program.display())))?;
        if !is_static(&bytes) {
            return Err(KindError::NotStatic {
                program: program.display().to_string(),
            });
        }
        let folder = context(self, &bytes)?;
        let what = format!("build the image {}", self.repository);
        let path = folder.path().to_string_lossy().into_owned();
        let id = tools.docker(&what, ["build", "--quiet", &path]).await?;
        let id = id.trim();
        let digest = id.strip_prefix("sha256:").unwrap_or(id);
        let name = format!("{}:{}", self.repository, &digest[..digest.len().min(12)]);
        tools.docker(&what, ["tag", id, &name]).await?;
        Ok(name)
    }

    fn containerfile(&self) -> String {
        let entry: Vec<String> = [format!("/{}", self.program)]
            .into_iter()
            .chain(self.arguments.iter().map(|argument| (*argument).to_owned()))
            .map(|word| format!("{word:?}"))
            .collect();
        format!(
            "FROM scratch\nCOPY {program} /{program}\nUSER 0:0\nENTRYPOINT [{}]\n",
            entry.join(", "),
            program = self.program
        )
    }
}

/// Puts images on every node of a cluster.
pub(super) async fn load(tools: &Tools, cluster: &str, images: &[String]) -> Result<(), KindError> {
    let mut arguments = vec!["load", "docker-image", "--name", cluster];
    arguments.extend(images.iter().map(String::as_str));
    let what = format!("load images into the nodes of {cluster}");
    tools.kind(&what, arguments).await.map(drop)
}

/// What a build reads; gone with the value.
fn context(recipe: &Recipe, program: &[u8]) -> Result<TempDir, KindError> {
    let folder = tempfile::tempdir().map_err(io_error("make a temporary folder"))?;
    let write = |name: &str, bytes: &[u8], mode: u32| {
        let file = folder.path().join(name);
        let failed = || io_error(format!("write {}", file.display()));
        fs::write(&file, bytes).map_err(failed())?;
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).map_err(failed())
    };
    write(recipe.program, program, 0o755)?;
    write("Dockerfile", recipe.containerfile().as_bytes(), 0o644)?;
    Ok(folder)
}

/// Whether an ELF program asks for no interpreter; what is no 64-bit little-endian ELF is none.
fn is_static(bytes: &[u8]) -> bool {
    let number = |at: usize, size: usize| -> Option<usize> {
        let mut value = [0; 8];
        value.get_mut(..size)?.copy_from_slice(bytes.get(at..at + size)?);
        usize::try_from(u64::from_le_bytes(value)).ok()
    };
    let header = || -> Option<bool> {
        // Class 2 is 64 bits, data 1 little-endian.
        if bytes.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let (start, size, count) = PROGRAM_HEADERS;
        let (start, size, count) = (number(start, 8)?, number(size, 2)?, number(count, 2)?);
        let segment = |index: usize| number(start.checked_add(index.checked_mul(size)?)?, 4);
        let interpreted = (0..count).any(|index| segment(index) == usize::try_from(PT_INTERP).ok());
        Some(!interpreted)
    };
    header().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_of_the_probe_is_its_program_and_nothing_else() {
        assert_eq!(
            PROBE.containerfile(),
            "FROM scratch\nCOPY plumbline /plumbline\nUSER 0:0\nENTRYPOINT [\"/plumbline\", \"probe\"]\n"
        );
    }

    /// A program with segments of these types and nothing else.
    fn elf(segments: &[u32]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(0x40, 0);
        bytes[0x20] = 0x40;
        bytes[0x36] = 56;
        bytes[0x38] = u8::try_from(segments.len()).expect("few");
        for kind in segments {
            let at = bytes.len();
            bytes.resize(at + 56, 0);
            bytes[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        }
        bytes
    }

    /// Docker, unless there is none: then the test is on record as skipped.
    async fn docker() -> Option<Tools> {
        let found = Tools::find().await;
        if let Err(error) = &found {
            testing::skip(&testing::current(), &error.to_string());
        }
        found.ok()
    }

    #[tokio::test]
    async fn an_image_is_made_without_a_registry_and_named_by_its_content() {
        let Some(tools) = docker().await else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("tiny");
        fs::write(&program, elf(&[1])).expect("a file");
        let recipe = Recipe {
            repository: "plumbline-test",
            program: "tiny",
            arguments: &["first"],
        };
        let name = recipe.build(&tools, &program).await.expect("an image");
        let again = recipe.build(&tools, &program).await.expect("the same image");
        let entry = ["inspect", "--format", "{{json .Config.Entrypoint}}", &name];
        let entry = tools
            .docker("look at the image", entry)
            .await
            .expect("it is there");
        tools
            .docker("remove the image", ["rmi", "--force", &name])
            .await
            .expect("it can go");
        assert_eq!(entry.trim(), r#"["/tiny","first"]"#);
        assert_eq!(name, again);
        fs::write(&program, elf(&[PT_INTERP])).expect("a file");
        let refused = recipe
            .build(&tools, &program)
            .await
            .expect_err("not static")
            .to_string();
        assert!(refused.contains("cargo xtask"), "{refused}");
    }

    #[test]
    fn a_program_with_an_interpreter_is_not_static() {
        assert!(is_static(&elf(&[1, 1, 7])));
        assert!(!is_static(&elf(&[6, PT_INTERP, 1])));
        assert!(!is_static(b"#!/bin/sh\n"), "a script needs its shell");
        assert!(!is_static(&elf(&[1])[..0x38]), "cut off");
    }
}
