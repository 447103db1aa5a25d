//! The build of the eBPF object.
//!
//! The bytes do not depend on the paths of the repository, the target folder, cargo's home and the library's sources:
//! paths are mapped to fixed ones, crates are identified by name ([`WRAPPER`]), the lock file is used unchanged, and
//! flags, profiles and wrappers of the caller's environment are ignored.

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
        // Stable compilers refuse -Z otherwise; `core` is built from this compiler's sources.
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
        // aya-ebpf selects the layout of `pt_regs` by it; no program here uses that.
        "--cfg=bpf_target_arch=\"x86_64\"".to_owned(),
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        // Otherwise the linker requests copies in byte order, which no program here needs, and thereby zeroes registers
        // in a call, which verifiers refuse to programs without CAP_PERFMON.
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
