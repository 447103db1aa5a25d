//! The packages of the workspace, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde_json::Value;

use crate::steps;

/// The packages of the workspace.
pub(crate) struct Packages(BTreeMap<String, Package>);

struct Package {
    /// Path from the root of the repository.
    folder: String,
    /// Packages of the workspace that the package is built from.
    dependencies: BTreeSet<String>,
    /// Packages of the workspace that only its tests use.
    of_tests: BTreeSet<String>,
}

impl Packages {
    /// Reads the packages.
    ///
    /// # Errors
    /// Cargo can't read a manifest.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let output = steps::cargo()
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
            .output()
            .context("failed to start cargo")?;
        anyhow::ensure!(
            output.status.success(),
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Self::parse(&serde_json::from_slice(&output.stdout)?).context("cargo metadata is not as expected")
    }

    fn parse(metadata: &Value) -> Option<Self> {
        let root = metadata.get("workspace_root")?.as_str()?;
        let mut packages = BTreeMap::new();
        for package in metadata.get("packages")?.as_array()? {
            let manifest = package.get("manifest_path")?.as_str()?;
            let folder = manifest
                .strip_prefix(root)?
                .strip_prefix('/')?
                .strip_suffix("/Cargo.toml")?;
            let mut found = Package {
                folder: folder.to_owned(),
                dependencies: BTreeSet::new(),
                of_tests: BTreeSet::new(),
            };
            for dependency in package.get("dependencies")?.as_array()? {
                if dependency.get("path").and_then(Value::as_str).is_none() {
                    continue;
                }
                let name = dependency.get("name")?.as_str()?.to_owned();
                let for_tests = dependency.get("kind").and_then(Value::as_str) == Some("dev");
                let names = if for_tests {
                    &mut found.of_tests
                } else {
                    &mut found.dependencies
                };
                names.insert(name);
            }
            packages.insert(package.get("name")?.as_str()?.to_owned(), found);
        }
        Some(Self(packages))
    }

    /// Name and folder of each.
    pub(super) fn folders(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, package)| (name.as_str(), package.folder.as_str()))
    }

    /// These packages and all that they are built from, each with its folder; with `tests`, also the dependencies of
    /// their own tests.
    ///
    /// # Errors
    /// A package is unknown.
    pub(super) fn with_dependencies(
        &self,
        names: &[&str],
        tests: bool,
    ) -> anyhow::Result<BTreeMap<&str, &str>> {
        let mut all = BTreeMap::new();
        let mut open: Vec<&str> = names.to_vec();
        if tests {
            let of_tests = names.iter().filter_map(|name| self.0.get(*name));
            open.extend(of_tests.flat_map(|package| package.of_tests.iter().map(String::as_str)));
        }
        while let Some(name) = open.pop() {
            let (name, package) = self
                .0
                .get_key_value(name)
                .with_context(|| format!("the workspace has no package {name}, of which CI has a part"))?;
            if all.insert(name.as_str(), package.folder.as_str()).is_none() {
                open.extend(package.dependencies.iter().map(String::as_str));
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_come_with_what_they_are_built_from() {
        let packages = Packages::find().unwrap();
        let of = |name, tests| -> Vec<&str> {
            packages
                .with_dependencies(&[name], tests)
                .unwrap()
                .into_keys()
                .collect()
        };
        assert_eq!(
            of("lb-packets", false),
            ["lb-abi", "lb-loader", "lb-packets", "test-network"]
        );
        assert_eq!(
            of("lb-packets", true),
            ["lb-abi", "lb-loader", "lb-packets", "test-network", "testing"]
        );
        assert_eq!(of("lb-flow", true), ["lb-abi", "lb-flow"]);
        assert!(of("plumbline", false).contains(&"oracle"));
        assert!(packages.with_dependencies(&["none"], false).is_err());
    }
}
