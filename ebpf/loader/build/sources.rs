//! The sources of the eBPF object, and their hashes: shared by this crate's build script, which compares, and
//! by `cargo xtask ebpf`, which writes.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

/// The object, from the root of the repository.
pub(crate) const OBJECT: &str = "ebpf/prebuilt/plumbline.bpf.o";
/// Hashes of the object and of all that it is made of, as `sha256sum --check` reads them.
pub(crate) const HASHES: &str = "ebpf/prebuilt/SOURCES.sha256";
/// Folders that the object is made of.
pub(crate) const FOLDERS: [&str; 3] = ["ebpf/abi", "ebpf/flow", "ebpf/programs"];
/// The compiler's version.
pub(crate) const TOOLCHAIN: &str = "rust-toolchain.toml";

/// One line for each source and one for the object, sorted by path; nothing in it depends on where the repository
/// is.
pub(crate) fn hashes(root: &Path, object: &[u8]) -> io::Result<String> {
    let mut files = vec![PathBuf::from(TOOLCHAIN)];
    for folder in FOLDERS {
        collect(root, Path::new(folder), &mut files)?;
    }
    let mut lines = vec![(OBJECT.to_owned(), digest(object))];
    for file in files {
        lines.push((file.display().to_string(), digest(&fs::read(root.join(&file))?)));
    }
    lines.sort();
    Ok(lines
        .into_iter()
        .map(|(path, hash)| format!("{hash}  {path}\n"))
        .collect())
}

/// The paths in whose lines two such texts differ.
pub(crate) fn differences<'a>(one: &'a str, other: &'a str) -> Vec<&'a str> {
    let mut paths = only_in(one, other);
    paths.extend(only_in(other, one));
    paths.sort_unstable();
    paths.dedup();
    paths
}

fn only_in<'a>(one: &'a str, other: &str) -> Vec<&'a str> {
    one.lines()
        .filter(|line| !other.lines().any(|known| known == *line))
        .map(|line| line.split_once("  ").map_or(line, |(_, path)| path))
        .collect()
}

/// Rust sources, manifests and the lock file; what was built from them is left out.
fn collect(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let file_type = entry.file_type()?;
        if file_type.is_dir() && entry.file_name() != "target" {
            collect(root, &path, files)?;
        } else if file_type.is_file()
            && path
                .extension()
                .is_some_and(|extension| extension == "rs" || extension == "toml" || extension == "lock")
        {
            files.push(path);
        }
    }
    Ok(())
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
