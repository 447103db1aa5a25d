//! Debian's kernels: lists those of its archive, fetches them by apt, which checks the archive's signature and the
//! packages' hashes, and unpacks them. All files, including apt's lists, are in the folder of this command; the host's
//! apt is not used.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, bail, ensure};

use super::expect_on_path;
use crate::steps;

/// The keys of the archive, from the package of the same name.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Suites in the format of `sources.list(5)`: Debian 11 to 13.
const SOURCES: [(&str, &str); 2] = [
    (
        "http://deb.debian.org/debian",
        "bullseye bookworm bookworm-backports trixie trixie-backports",
    ),
    (
        "http://deb.debian.org/debian-security",
        "bullseye-security bookworm-security trixie-security",
    ),
];

/// Pattern of the package names: kernels for virtual machines.
const PACKAGES: &str = "^linux-image-[0-9].*-cloud-amd64$";

/// Older lists are fetched again.
const LISTS_AGE: Duration = Duration::from_hours(7 * 24);

/// The file of apt's settings.
const SETTINGS: &str = "apt.conf";

/// A kernel and its modules.
pub(super) struct Kernel {
    /// The output of `uname -r`.
    pub(super) release: String,
    /// The bootable file.
    pub(super) image: PathBuf,
    /// The folder of its modules.
    pub(super) modules: PathBuf,
}

/// A version of a package.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Package {
    name: String,
    version: String,
    /// Separate packages of its modules, which newer kernels have.
    modules: Vec<String>,
}

impl Package {
    /// All numbers in the version, for comparing packages of one release.
    fn numbers(&self) -> Vec<u32> {
        let numbers = self.version.split(|digit: char| !digit.is_ascii_digit());
        numbers.filter_map(|number| number.parse().ok()).collect()
    }

    /// Version and patch level, such as `6.12`.
    fn release(&self) -> String {
        let numbers: Vec<String> = self.numbers().iter().take(2).map(u32::to_string).collect();
        numbers.join(".")
    }
}

/// The newest kernel of each release, as text.
pub(super) fn list(folder: &Path) -> anyhow::Result<String> {
    let lines = newest(available(folder)?)
        .into_iter()
        .map(|package| format!("{:<6} {} {}\n", package.release(), package.name, package.version));
    Ok(lines.collect())
}

/// The newest kernel of each of these releases, unpacked.
pub(super) fn fetch(folder: &Path, releases: &[String]) -> anyhow::Result<Vec<Kernel>> {
    let newest = newest(available(folder)?);
    let chosen: Vec<&Package> = releases
        .iter()
        .map(|release| {
            let found = newest.iter().find(|package| package.release() == *release);
            found.with_context(|| {
                let known: Vec<String> = newest.iter().map(Package::release).collect();
                format!("the archive has no kernel {release}; it has {}", known.join(", "))
            })
        })
        .collect::<Result<_, _>>()?;
    chosen
        .into_iter()
        .map(|package| unpacked(folder, package))
        .collect()
}

/// The newest of each release, in ascending order.
fn newest(mut packages: Vec<Package>) -> Vec<Package> {
    packages.sort_by_key(|package| std::cmp::Reverse(package.numbers()));
    packages.dedup_by_key(|package| package.release());
    packages.reverse();
    packages
}

/// The packages in the archive.
fn available(folder: &Path) -> anyhow::Result<Vec<Package>> {
    for program in ["apt-get", "apt-cache", "dpkg-deb"] {
        let why = "fetching Debian's kernels (not with --image and --modules)";
        expect_on_path(program, "apt and dpkg", why)?;
    }
    ensure!(
        Path::new(KEYRING).is_file(),
        "there is no {KEYRING}, by which apt knows the archive: install debian-archive-keyring"
    );
    let apt = Apt(folder.join("archive"));
    apt.update()?;
    let names = apt.output("apt-cache", &["search", "--names-only", PACKAGES])?;
    let names: Vec<&str> = names.lines().filter_map(|line| line.split(' ').next()).collect();
    ensure!(!names.is_empty(), "the archive has no package {PACKAGES}");
    Ok(packages(
        &apt.output("apt-cache", &[&["show"], &names[..]].concat())?,
    ))
}

/// Paragraphs of `apt-cache show`.
fn packages(text: &str) -> Vec<Package> {
    let field = |paragraph: &str, name: &str| {
        let line = paragraph.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().to_owned())
    };
    let paragraphs = text.split("\n\n");
    paragraphs
        .filter_map(|paragraph| {
            let depends = field(paragraph, "Depends:").unwrap_or_default();
            let depends = depends.split(',').map(str::trim);
            let depends = depends.filter_map(|depends| depends.split(' ').next());
            // A metapackage, which depends on the newest of its kind.
            if depends.clone().any(|name| name.starts_with("linux-image-")) {
                return None;
            }
            Some(Package {
                name: field(paragraph, "Package:")?,
                version: field(paragraph, "Version:")?,
                modules: depends
                    .filter(|name| name.starts_with("linux-modules-"))
                    .map(str::to_owned)
                    .collect(),
            })
        })
        .collect()
}

/// Fetches and unpacks a package, unless that was done before.
fn unpacked(folder: &Path, package: &Package) -> anyhow::Result<Kernel> {
    let place = folder
        .join("unpacked")
        .join(format!("{}_{}", package.name, package.version));
    if !place.is_dir() {
        let partial = folder.join("unpacked/partial");
        for folder in [&partial, &folder.join("packages")] {
            if folder.exists() {
                fs::remove_dir_all(folder)
                    .with_context(|| format!("failed to remove {}", folder.display()))?;
            }
            fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
        }
        let apt = Apt(folder.join("archive"));
        let mut download = apt.command("apt-get", &["--quiet", "download"]);
        download.arg(format!("{}={}", package.name, package.version));
        download
            .args(&package.modules)
            .current_dir(folder.join("packages"));
        steps::must(&format!("fetch {}", package.name), &mut download)?;
        for file in fs::read_dir(folder.join("packages")).context("failed to list what was fetched")? {
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("--extract").arg(file?.path()).arg(&partial);
            steps::must("unpack", &mut unpack)?;
        }
        fs::rename(&partial, &place).with_context(|| format!("failed to rename {}", partial.display()))?;
    }
    // Debian 13 and later use `usr`.
    let modules = ["lib/modules", "usr/lib/modules"].map(|modules| only(&place.join(modules)));
    let modules = modules.into_iter().flatten().next();
    let modules = modules.with_context(|| format!("{} has no folder of modules", package.name))?;
    let release = modules
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let image = place.join(format!("boot/vmlinuz-{release}"));
    ensure!(image.is_file(), "{} has no {}", package.name, image.display());
    Ok(Kernel {
        release,
        image,
        modules,
    })
}

/// The only entry of a folder, if there is exactly one.
fn only(folder: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(folder).ok()?.flatten();
    let first = entries.next()?;
    entries.next().is_none().then(|| first.path())
}

/// apt with its own lists and caches, in this folder.
struct Apt(PathBuf);

impl Apt {
    /// Fetches the archive's lists, unless they are recent. Lists that can't be fetched keep their old state.
    fn update(&self) -> anyhow::Result<()> {
        for folder in ["sources", "state/lists/partial", "cache/archives/partial"] {
            let folder = self.0.join(folder);
            fs::create_dir_all(&folder).with_context(|| format!("failed to make {}", folder.display()))?;
        }
        let sources: Vec<String> = SOURCES
            .iter()
            .map(|(place, suites)| {
                format!(
                    "Types: deb\nURIs: {place}\nSuites: {suites}\nComponents: main\nSigned-By: {KEYRING}\n"
                )
            })
            .collect();
        for (file, text) in [
            ("sources/debian.sources", sources.join("\n")),
            ("state/status", String::new()),
            (SETTINGS, self.settings()),
        ] {
            let file = self.0.join(file);
            fs::write(&file, text).with_context(|| format!("failed to write {}", file.display()))?;
        }
        let fetched = self.0.join("fetched");
        let age = fs::metadata(&fetched)
            .and_then(|file| file.modified())
            .ok()
            .and_then(|then| SystemTime::now().duration_since(then).ok());
        if age.is_some_and(|age| age < LISTS_AGE) {
            return Ok(());
        }
        if !steps::run(
            "lists of the archive",
            &mut self.command("apt-get", &["--quiet", "update"]),
        )? {
            eprintln!("      not all of it could be fetched (see above): what is there is used");
            return Ok(());
        }
        fs::write(&fetched, "").with_context(|| format!("failed to write {}", fetched.display()))
    }

    /// The output of a command.
    fn output(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self
            .command(program, arguments)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("failed to start {program}"))?;
        if !output.status.success() {
            bail!("{program} failed; its output above says why");
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.arg("-c").arg(self.0.join(SETTINGS)).args(arguments);
        command
    }

    /// Additional settings, read before the host's (`apt.conf(5)`).
    fn settings(&self) -> String {
        let place = |folder: &str| self.0.join(folder).display().to_string();
        let settings = [
            ("Dir::Etc::sourcelist", "/dev/null".to_owned()),
            ("Dir::Etc::sourceparts", place("sources")),
            ("Dir::State", place("state")),
            ("Dir::State::status", place("state/status")),
            ("Dir::Cache", place("cache")),
            ("Acquire::Languages", "none".to_owned()),
            // appstream's hook requires this for every archive.
            (
                "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled",
                "false".to_owned(),
            ),
            // apt's own user can't write here.
            ("APT::Sandbox::User", "root".to_owned()),
        ];
        let lines = settings
            .iter()
            .map(|(name, value)| format!("{name} \"{value}\";\n"));
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_release_the_newest_is_taken_by_number() {
        let package = |name: &str, version: &str| {
            format!(
                "Package: linux-image-{name}-cloud-amd64\nVersion: {version}\nDepends: kmod, initramfs-tools\n"
            )
        };
        let text = [
            package("6.1.0-9", "6.1.99-1"),
            package("6.12.9", "6.12.9-1"),
            package("6.1.0-50", "6.1.176-1"),
            package("6.12.95+deb12", "6.12.95-1~bpo12+1"),
        ];
        let newest = newest(packages(&text.join("\n")));
        let chosen: Vec<_> = newest
            .iter()
            .map(|package| (package.release(), package.version.as_str()))
            .collect();
        let expected = [("6.1", "6.1.176-1"), ("6.12", "6.12.95-1~bpo12+1")];
        assert_eq!(
            chosen,
            expected.map(|(release, version)| (release.to_owned(), version))
        );
    }

    #[test]
    fn modules_of_their_own_package_are_named_and_packages_of_packages_left_out() {
        let text = "Package: linux-image-7.3.4-cloud-amd64\nVersion: 7.3.4-1\nDepends: linux-base (= 1), \
                    linux-modules-7.3.4-cloud-amd64 (= 7.3.4-1)\n\nPackage: linux-image-7.3-cloud-amd64\n\
                    Version: 7.3.5-1\nDepends: linux-image-7.3.4-cloud-amd64 (= 7.3.4-1)\n";
        assert_eq!(packages(text).len(), 1);
        assert_eq!(packages(text)[0].modules, ["linux-modules-7.3.4-cloud-amd64"]);
    }
}
