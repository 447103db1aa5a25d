//! `plumbline images`: what nodes run, for registries and for clusters that have none.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, ensure};
use clap::Subcommand;
use object::{
    LittleEndian,
    elf::PT_INTERP,
    read::elf::{ElfFile64, ProgramHeader as _},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::PROGRAM;

/// Its repository, without a registry.
const REPOSITORY: &str = "plumbline-probe";

/// The images that a run needs.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
  plumbline images save probe.tar
  docker load -i probe.tar                          or podman load, ctr -n k8s.io images import
  kind load image-archive probe.tar
  skopeo copy docker-archive:probe.tar docker://REGISTRY/plumbline-probe:TAG")]
pub(crate) enum Command {
    /// Print their names, one a line
    List(RegistryArgs),
    /// Write them into an archive, without Docker: this program, which must be static, for this architecture
    Save(SaveArgs),
}

/// Where images come from.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RegistryArgs {
    /// Registry, and folder in it, that images are pulled from
    #[arg(long, value_name = "REGISTRY")]
    pub(super) registry: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SaveArgs {
    #[command(flatten)]
    registry: RegistryArgs,
    /// The archive; it must not be there yet
    #[arg(value_name = "FILE")]
    to: PathBuf,
}

impl RegistryArgs {
    /// Name of the image of clients and backends.
    pub(super) fn probe(&self) -> String {
        let name = format!("{REPOSITORY}:{}", env!("CARGO_PKG_VERSION"));
        match &self.registry {
            Some(registry) => format!("{}/{name}", registry.trim_end_matches('/')),
            None => name,
        }
    }
}

pub(crate) fn images(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List(registry) => println!("{}", registry.probe()),
        Command::Save(SaveArgs { registry, to }) => {
            let own = fs::read("/proc/self/exe").context("failed to read this program")?;
            let archive = archive(&own, &registry.probe())?;
            let mut file = fs::File::create_new(to).with_context(|| {
                format!(
                    "failed to make {}; expected a file that is not there",
                    to.display()
                )
            })?;
            file.write_all(&archive)
                .with_context(|| format!("failed to write {}", to.display()))?;
            println!("{} is in {}", registry.probe(), to.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An image in the format of `docker save`: the same bytes for the same program.
fn archive(program: &[u8], name: &str) -> anyhow::Result<Vec<u8>> {
    ensure!(
        is_static(program),
        "this program needs a dynamic linker, which an image from scratch does not have; expected the static one that \
         `cargo xtask dist` builds"
    );
    let layer = tar(&[(PROGRAM.trim_start_matches('/'), program, 0o755)])?;
    let config = config(&format!("sha256:{:x}", Sha256::digest(&layer)));
    let config = serde_json::to_vec(&config)?;
    let config_name = format!("{:x}.json", Sha256::digest(&config));
    let manifest = json!([{ "Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"] }]);
    let manifest = serde_json::to_vec(&manifest)?;
    let files: [(&str, &[u8], u32); 3] = [
        ("manifest.json", &manifest, 0o644),
        (&config_name, &config, 0o644),
        ("layer.tar", &layer, 0o644),
    ];
    Ok(tar(&files)?)
}

fn config(layer: &str) -> Value {
    json!({
        "architecture": architecture(std::env::consts::ARCH), "os": "linux",
        "config": { "Entrypoint": [PROGRAM, "probe"], "User": "0:0" },
        "rootfs": { "type": "layers", "diff_ids": [layer] },
    })
}

/// As Go names it, and images do.
fn architecture(ours: &str) -> &str {
    match ours {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn tar(files: &[(&str, &[u8], u32)]) -> std::io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, bytes, mode) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        header.set_mode(*mode);
        builder.append_data(&mut header, Path::new(path), *bytes)?;
    }
    builder.into_inner()
}

/// Whether it is an ELF program that asks for no interpreter.
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
    use std::{collections::BTreeMap, io::Read as _};

    use super::*;

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap();
        entries
            .map(|entry| {
                let mut entry = entry.unwrap();
                let name = entry.path().unwrap().display().to_string();
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).unwrap();
                (name, bytes)
            })
            .collect()
    }

    /// The header of a 64-bit little-endian program without segments.
    fn static_program() -> Vec<u8> {
        let mut elf = vec![0; 64];
        elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        elf[16] = 2; // e_type: executable
        elf[18] = 62; // e_machine: x86-64
        elf[20] = 1; // e_version
        elf[52] = 64; // e_ehsize
        elf
    }

    #[test]
    fn an_archive_names_what_it_holds_by_its_content() {
        let program = static_program();
        let archive = archive(&program, "r/plumbline-probe:1").unwrap();
        let files = files(&archive);
        let manifest: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"], json!(["r/plumbline-probe:1"]));
        let config: Value = serde_json::from_slice(&files[manifest[0]["Config"].as_str().unwrap()]).unwrap();
        assert_eq!(config["config"]["Entrypoint"], json!(["/plumbline", "probe"]));
        let layer = &files["layer.tar"];
        let digest = format!("sha256:{:x}", Sha256::digest(layer));
        assert_eq!(config["rootfs"]["diff_ids"], json!([digest]));
        assert_eq!(self::files(layer)["plumbline"], program);
    }

    #[test]
    fn a_program_that_an_image_from_scratch_can_not_run_is_refused() {
        assert!(is_static(&static_program()));
        assert!(!is_static(b"#!/bin/sh\n"));
        let own = fs::read("/proc/self/exe").unwrap();
        let error = archive(&own, "n").unwrap_err();
        assert!(error.to_string().contains("cargo xtask dist"), "{error}");
    }

    #[test]
    fn names_have_their_registry() {
        let of = |registry: Option<&str>| {
            let registry = registry.map(str::to_owned);
            RegistryArgs { registry }.probe()
        };
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(of(None), format!("plumbline-probe:{version}"));
        assert_eq!(
            of(Some("r.example/x/")),
            format!("r.example/x/plumbline-probe:{version}")
        );
    }
}
