//! The build of the eBPF object.
//!
//! The same bytes wherever the repository, the target folder, cargo's home and the library's sources are: their
//! paths are mapped to fixed ones, crates are identified by name ([`WRAPPER`]), the lock file is obeyed, and no
//! flag, profile or wrapper of the caller's environment gets in.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};

use super::{strip, toolchain::Toolchain};
use crate::steps;

const TARGET: &str = "bpfel-unknown-none";
const PROGRAM: &str = "plumbline";
const WRAPPER: &str = include_str!("rustc.sh");

/// Compiles, links and strips the object.
pub(super) fn object(root: &Path, toolchain: &Toolchain) -> anyhow::Result<Vec<u8>> {
    let target = root.join("target/ebpf");
    let wrapper = install_wrapper(&target)?;
    let mut cargo = steps::cargo();
    cargo
        .current_dir(root.join("ebpf/programs"))
        .args(["build", "--quiet", "--release", "--locked", "-Zbuild-std=core"])
        .args(["--target", TARGET])
        .arg("--target-dir")
        .arg(&target);
    for (name, _) in env::vars_os() {
        let foreign = name.to_str().is_some_and(|name| {
            name.starts_with("RUSTC")
                || name == "RUSTFLAGS"
                || name.starts_with("CARGO_PROFILE_")
                || name.starts_with("CARGO_BUILD_")
                || name.starts_with("CARGO_TARGET_")
        });
        if foreign {
            cargo.env_remove(name);
        }
    }
    cargo
        // Stable compilers refuse -Z otherwise; `core` is built from the sources of this very compiler.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("__CARGO_TESTS_ONLY_SRC_ROOT", &toolchain.library)
        .env("RUSTC_WRAPPER", wrapper)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(root, toolchain)?.join("\x1f"));
    let status = cargo.status().context("failed to run cargo")?;
    ensure!(status.success(), "the eBPF build failed (see above)");
    let linked = target.join(TARGET).join("release").join(PROGRAM);
    let linked = fs::read(&linked).with_context(|| format!("failed to read {}", linked.display()))?;
    strip::debug_sections(&linked).context("the eBPF object was linked, but can't be used")
}

fn flags(root: &Path, toolchain: &Toolchain) -> anyhow::Result<Vec<String>> {
    let mut flags = vec![
        // aya-ebpf chooses the layout of `pt_regs` by it; no program here uses that.
        "--cfg=bpf_target_arch=\"x86_64\"".to_owned(),
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        // Otherwise the linker asks for copies in the order of their bytes, which no program here needs, and by that
        // for zeroes in a call, which verifiers refuse to programs without CAP_PERFMON.
        "-Clink-arg=--disable-expand-memcpy-in-order".to_owned(),
        "-Ctarget-cpu=v3".to_owned(),
    ];
    let mut remap =
        |from: &Path, to: &str| flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    remap(root, "/plumbline");
    remap(&toolchain.library, "/rust/library");
    let sources = cargo_home()?.join("registry/src");
    for registry in fs::read_dir(&sources).with_context(|| format!("failed to list {}", sources.display()))? {
        remap(&registry?.path(), "/registry");
    }
    Ok(flags)
}

fn cargo_home() -> anyhow::Result<PathBuf> {
    if let Some(home) = env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    Ok(PathBuf::from(env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?).join(".cargo"))
}

fn install_wrapper(target: &Path) -> anyhow::Result<PathBuf> {
    let path = target.join("rustc.sh");
    let install = || {
        fs::create_dir_all(target)?;
        fs::write(&path, WRAPPER)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
    };
    install().with_context(|| format!("failed to write {}", path.display()))?;
    Ok(path)
}
