//! The modules of a kernel that the programs need, each after its dependencies.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};
use object::{Object as _, ObjectSection as _};

/// Modules to load, with their dependencies. A kernel may have them built in, or not have them at all.
const WANTED: [&str; 13] = [
    "veth",
    "bridge",
    "vxlan",
    "cls_bpf",
    "sch_ingress",
    "inet_diag",
    "tcp_diag",
    "udp_diag",
    "sctp",
    "sctp_diag",
    "nf_tables",
    "nf_conntrack",
    "netkit",
];

/// A module to load.
pub(super) struct Module {
    name: String,
    /// The uncompressed ELF file.
    pub(super) bytes: Vec<u8>,
}

impl Module {
    /// Path in the machine.
    pub(super) fn path(&self) -> String {
        format!("/modules/{}.ko", self.name)
    }
}

/// Modules of a kernel.
pub(super) struct Modules {
    /// Modules in the order of loading.
    pub(super) found: Vec<Module>,
    /// Modules that neither exist nor are built in.
    pub(super) missing: Vec<&'static str>,
}

/// Finds the needed modules.
pub(super) fn wanted(folder: &Path) -> anyhow::Result<Modules> {
    let mut files = BTreeMap::new();
    list(&folder.join("kernel"), &mut files)?;
    ensure!(
        !files.is_empty(),
        "there are no modules below {}: expected the folder of a release, such as /lib/modules/6.18.0",
        folder.display()
    );
    let built_in = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
    let built_in: Vec<String> = built_in
        .lines()
        .filter_map(|line| name_of(Path::new(line)))
        .collect();
    let mut modules = Modules {
        found: Vec::new(),
        missing: Vec::new(),
    };
    for name in WANTED {
        if files.contains_key(name) {
            add(name, &files, &mut modules.found)?;
        } else if !built_in.iter().any(|built_in| built_in == name) {
            modules.missing.push(name);
        }
    }
    Ok(modules)
}

/// Files of modules by name; the kernel treats `-` and `_` as equal.
fn list(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if let Some(name) = name_of(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

fn name_of(file: &Path) -> Option<String> {
    let (name, _) = file.file_name()?.to_str()?.split_once(".ko")?;
    Some(name.replace('-', "_"))
}

/// Adds a module after its dependencies, hard and soft.
fn add(name: &str, files: &BTreeMap<String, PathBuf>, found: &mut Vec<Module>) -> anyhow::Result<()> {
    if found.iter().any(|module| module.name == name) {
        return Ok(());
    }
    let Some(file) = files.get(name) else {
        return Ok(());
    };
    let bytes = read(file)?;
    let about = about(&bytes).with_context(|| format!("{} is no module", file.display()))?;
    for before in before(&about) {
        add(&before, files, found)?;
    }
    found.push(Module {
        name: name.to_owned(),
        bytes,
    });
    Ok(())
}

/// The `.modinfo` section: `key=value` texts, each ended by NUL.
fn about(bytes: &[u8]) -> Option<String> {
    let file = object::File::parse(bytes).ok()?;
    let section = file.section_by_name(".modinfo")?;
    Some(String::from_utf8_lossy(section.data().ok()?).into_owned())
}

/// Modules to be loaded before the one with this information: its dependencies (`depends`), and those that it finds by
/// a name in the kernel, such as an algorithm (`softdep=pre:`), which may be built in.
fn before(about: &str) -> Vec<String> {
    let mut names = Vec::new();
    for entry in about.split('\0') {
        if let Some(depends) = entry.strip_prefix("depends=") {
            names.extend(depends.split(','));
        } else if let Some(before) = entry.strip_prefix("softdep=pre:") {
            let before = before.split(" post:").next().unwrap_or_default();
            names.extend(before.split_whitespace());
        }
    }
    let names = names.into_iter().filter(|name| !name.is_empty());
    names.map(|name| name.replace('-', "_")).collect()
}

/// Reads and decompresses a file: not every kernel can do that itself.
fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let tool = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(file).with_context(|| format!("failed to read {}", file.display())),
    };
    super::expect_on_path(tool, tool, "a module that is compressed")?;
    let output = Command::new(tool)
        .args(["--decompress", "--stdout"])
        .arg(file)
        .output()
        .with_context(|| format!("failed to start {tool}"))?;
    if !output.status.success() {
        bail!(
            "{tool} can't read {}: {}",
            file.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_is_loaded_before_it() {
        let said =
            "license=GPL\0softdep=pre: crc32c post: other\0depends=udp_tunnel,ip6-udp-tunnel\0name=sctp\0";
        assert_eq!(before(said), ["crc32c", "udp_tunnel", "ip6_udp_tunnel"]);
        assert_eq!(before("depends=\0name=veth\0"), Vec::<String>::new());
    }

    #[test]
    fn names_of_modules_do_not_depend_on_how_they_are_packed() {
        for (file, name) in [
            ("net/sched/sch_ingress.ko", "sch_ingress"),
            ("arch/x86/crypto/crc32c-intel.ko.xz", "crc32c_intel"),
        ] {
            assert_eq!(name_of(Path::new(file)).as_deref(), Some(name));
        }
        assert_eq!(name_of(Path::new("modules.builtin")), None);
    }

    #[test]
    fn a_folder_without_modules_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("kernel")).unwrap();
        let error = wanted(folder.path()).err().unwrap().to_string();
        assert!(error.contains("there are no modules below"), "{error}");
    }
}
