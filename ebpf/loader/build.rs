//! Says so when the eBPF object that is about to be embedded was made from other sources than those beside it.

use std::{env, fs, path::PathBuf};

#[path = "build/sources.rs"]
mod sources;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/sources.rs");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    for watched in sources::FOLDERS
        .iter()
        .chain(&[sources::TOOLCHAIN, sources::OBJECT, sources::HASHES])
    {
        if root.join(watched).exists() {
            println!("cargo::rerun-if-changed={}", root.join(watched).display());
        }
    }
    // Where the sources are not, as in an image that builds only this crate, there is nothing to compare.
    if !sources::FOLDERS.iter().all(|folder| root.join(folder).exists()) {
        return;
    }
    let compare = || -> std::io::Result<Vec<String>> {
        let object = fs::read(root.join(sources::OBJECT))?;
        let recorded = fs::read_to_string(root.join(sources::HASHES))?;
        let found = sources::hashes(&root, &object)?;
        Ok(sources::differences(&recorded, &found)
            .into_iter()
            .map(str::to_owned)
            .collect())
    };
    match compare() {
        Ok(differing) if differing.is_empty() => {}
        Ok(differing) => println!(
            "cargo::warning=THE EMBEDDED eBPF OBJECT IS NOT THAT OF THESE SOURCES (differing: {}). What runs in the \
             kernel is the committed object; to make it anew: cargo xtask ebpf build",
            differing.join(", ")
        ),
        Err(error) => println!(
            "cargo::warning=the eBPF object cannot be compared with its sources ({error}): cargo xtask ebpf build"
        ),
    }
}
