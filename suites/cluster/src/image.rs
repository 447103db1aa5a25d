//! Container images of the project's programs: one static program each, on an empty base, built without Docker and
//! registry.
//!
//! The format is that of `docker save`, which `docker load`, `ctr images import` and `kind load image-archive` read
//! (<https://github.com/moby/docker-image-spec>).

use std::{io, path::Path};

use object::{
    LittleEndian,
    elf::PT_INTERP,
    read::elf::{ElfFile64, ProgramHeader as _},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// An image of one program.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// Repository, without a registry.
    pub repository: &'static str,
    /// Path of the program in the image.
    pub program: &'static str,
    /// Entry point arguments after the program.
    pub arguments: &'static [&'static str],
    /// Default user and group: numbers, as the image has no `/etc/passwd`.
    pub user: &'static str,
}

/// The image of clients and backends.
pub const PROBE: Image = Image {
    repository: "plumbline-probe",
    program: "/plumbline",
    arguments: &["probe"],
    // Kubelets verify by the number that this is not root, without `runAsUser` in the pod: some clusters assign a
    // user to each namespace.
    user: "65532:65532",
};

/// The image of the reference agent.
pub const AGENT: Image = Image {
    repository: "plumbline-reference-agent",
    program: "/reference-agent",
    arguments: &[],
    user: "0:0",
};

/// A built image without a name: the same bytes for the same program.
#[derive(Clone, Debug)]
pub struct Made {
    layer: Vec<u8>,
    config: Vec<u8>,
}

/// Why an image can't be built.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The base is empty, so a program has to be static.
    #[error(
        "this program needs a dynamic linker, which an image from scratch does not have; expected a static one, as \
         `cargo xtask dist` builds it, and `cargo xtask e2e --provider kind`"
    )]
    NotStatic,
    /// An archive could not be written.
    #[error("failed to make an archive: {0}")]
    Archive(#[from] io::Error),
}

impl Image {
    /// Builds the image for this architecture.
    ///
    /// # Errors
    /// The program is not static.
    pub fn make(&self, program: &[u8]) -> Result<Made, ImageError> {
        if !is_static(program) {
            return Err(ImageError::NotStatic);
        }
        let layer = tar(&[(self.program.trim_start_matches('/'), program, 0o755)])?;
        let entry: Vec<&str> = [self.program]
            .into_iter()
            .chain(self.arguments.iter().copied())
            .collect();
        let config = json!({
            "architecture": architecture(std::env::consts::ARCH), "os": "linux",
            "config": { "Entrypoint": entry, "User": self.user },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer))] },
        });
        let config = serde_json::to_vec(&config).map_err(io::Error::from)?;
        Ok(Made { layer, config })
    }
}

impl Made {
    /// The image's id, which does not depend on its name: 64 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> String {
        digest(&self.config)
    }

    /// The archive, with a name and a tag.
    ///
    /// # Errors
    /// No known cause: the archive is written into memory.
    pub fn archive(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        let config = format!("{}.json", self.id());
        let manifest: Value = json!([{ "Config": config, "RepoTags": [name], "Layers": ["layer.tar"] }]);
        let manifest = serde_json::to_vec(&manifest).map_err(io::Error::from)?;
        let files: [(&str, &[u8], u32); 3] = [
            ("manifest.json", &manifest, 0o644),
            (&config, &self.config, 0o644),
            ("layer.tar", &self.layer, 0o644),
        ];
        Ok(tar(&files)?)
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// Architecture of this program, as nodes name theirs.
#[must_use]
pub fn own_architecture() -> &'static str {
    architecture(std::env::consts::ARCH)
}

/// Go's name of an architecture, which images use.
fn architecture(ours: &str) -> &str {
    match ours {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn tar(files: &[(&str, &[u8], u32)]) -> io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, bytes, mode) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        header.set_mode(*mode);
        builder.append_data(&mut header, Path::new(path), *bytes)?;
    }
    builder.into_inner()
}

/// Whether the program is an ELF file without an interpreter.
fn is_static(program: &[u8]) -> bool {
    let Ok(file) = ElfFile64::<LittleEndian>::parse(program) else {
        return false;
    };
    let endian = LittleEndian;
    let headers = file.elf_program_headers();
    !headers.iter().any(|header| header.p_type(endian) == PT_INTERP)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, io::Read as _};

    use testing::elf::static_program;

    use super::*;

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().expect("an archive");
        entries
            .map(|entry| {
                let mut entry = entry.expect("a file");
                let name = entry.path().expect("a path").display().to_string();
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).expect("its bytes");
                (name, bytes)
            })
            .collect()
    }

    #[test]
    fn an_archive_names_what_it_holds_by_its_content() {
        let program = static_program();
        let made = PROBE.make(&program).expect("an image");
        let archive = made.archive("r/plumbline-probe:1").expect("an archive");
        let files = files(&archive);
        let manifest: Value = serde_json::from_slice(&files["manifest.json"]).expect("JSON");
        assert_eq!(manifest[0]["RepoTags"], json!(["r/plumbline-probe:1"]));
        let config = manifest[0]["Config"].as_str().expect("a name");
        assert_eq!(config, format!("{}.json", made.id()));
        let config: Value = serde_json::from_slice(&files[config]).expect("JSON");
        assert_eq!(config["config"]["Entrypoint"], json!(["/plumbline", "probe"]));
        assert_eq!(config["config"]["User"], "65532:65532");
        let layer = &files["layer.tar"];
        let digest = format!("sha256:{:x}", Sha256::digest(layer));
        assert_eq!(config["rootfs"]["diff_ids"], json!([digest]));
        assert_eq!(self::files(layer)["plumbline"], program);
        let again = PROBE.make(&program).expect("the same image");
        assert_eq!(again.id(), made.id());
        assert_ne!(AGENT.make(&program).expect("another").id(), made.id());
    }

    #[test]
    fn a_program_that_an_image_from_scratch_can_not_run_is_refused() {
        assert!(is_static(&static_program()));
        assert!(!is_static(b"#!/bin/sh\n"));
        let own = fs::read("/proc/self/exe").expect("this program");
        let error = PROBE.make(&own).expect_err("it is not static").to_string();
        assert!(error.contains("cargo xtask dist"), "{error}");
    }
}
