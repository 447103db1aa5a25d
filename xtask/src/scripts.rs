//! Tests of scripts for users: `install.sh`, from a folder in place of the releases page and with a `gh` of the test; and the summary of
//! a run on the page of a workflow.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// A release, and a machine to install it on.
struct Release {
    folder: TempDir,
}

impl Release {
    fn new() -> Self {
        let release = Self {
            folder: tempfile::tempdir().expect("a release of the test"),
        };
        let assets = release.assets();
        fs::create_dir_all(&assets).expect("a release of the test");
        let mut sums = String::new();
        for program in ["plumbline", "reference-agent"] {
            let text = format!("#!/bin/sh\necho {program} 1.2.3\n");
            let name = format!("{program}-{}", std::env::consts::ARCH);
            sums += &format!("{:x}  {name}\n", Sha256::digest(&text));
            fs::write(assets.join(name), text).expect("a release of the test");
        }
        for contents in ["plumbline", "reference-agent", "lb-programs"] {
            let name = format!("{contents}.cdx.json");
            sums += &format!("{:x}  {name}\n", Sha256::digest("{}"));
            fs::write(assets.join(name), "{}").expect("a release of the test");
        }
        fs::write(assets.join("SHA256SUMS"), sums).expect("a release of the test");
        release.gh("exit 0");
        release
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn assets(&self) -> PathBuf {
        self.path("releases/download/v1.2.3")
    }

    /// A `gh` that notes its arguments first.
    fn gh(&self, then: &str) {
        let gh = self.path("bin/gh");
        fs::create_dir_all(gh.parent().expect("a release of the test")).expect("a release of the test");
        let noted = self.path("gh.txt");
        let script = format!("#!/bin/sh\necho \"$@\" >> {}\n{then}\n", noted.display());
        fs::write(&gh, script).expect("a release of the test");
        fs::set_permissions(&gh, fs::Permissions::from_mode(0o755)).expect("a release of the test");
    }

    /// Runs the script; the programs go to `to`.
    fn install(&self, arguments: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../install.sh");
        let path = std::env::var("PATH").expect("a release of the test");
        Command::new(script)
            .args(["--repository", "owner/plumbline", "--version", "v1.2.3", "--to"])
            .arg(self.path("to"))
            .args(arguments)
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env(
                "PLUMBLINE_RELEASES",
                format!("file://{}/releases", self.folder.path().display()),
            )
            .output()
            .expect("a release of the test")
    }

    fn has_installed_nothing(&self) -> bool {
        !self.path("to").exists()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn released_programs_are_installed_when_sums_and_provenance_are_right() {
    let release = Release::new();
    let sbom = release.path("sbom");
    for _ in 0..2 {
        let output = release.install(&["--sbom", sbom.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(said(&output).contains("plumbline 1.2.3"), "{}", said(&output));
    }
    for program in ["plumbline", "reference-agent"] {
        let mode = fs::metadata(release.path("to").join(program))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o755, "{program}");
    }
    assert_eq!(fs::read_dir(&sbom).unwrap().count(), 3);
    let verified = fs::read_to_string(release.path("gh.txt")).unwrap();
    let of_one_run = verified.lines().count() / 2;
    assert_eq!(
        of_one_run, 6,
        "the list of sums, two programs, three lists of contents: {verified}"
    );
    let is_right =
        |line: &str| line.starts_with("attestation verify ") && line.ends_with(" --repo owner/plumbline");
    assert!(verified.lines().all(is_right), "{verified}");
}

#[test]
fn nothing_is_installed_that_is_not_what_was_released() {
    let program = format!("plumbline-{}", std::env::consts::ARCH);
    let release = Release::new();
    fs::write(release.assets().join(&program), "#!/bin/sh\necho another\n").unwrap();
    let output = release.install(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains(&format!("{program} is not what was released")),
        "{}",
        said(&output)
    );
    assert!(release.has_installed_nothing());

    // A program that the list of sums leaves out.
    let release = Release::new();
    fs::write(release.assets().join("SHA256SUMS"), "").unwrap();
    let output = release.install(&["--checksums-only"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("none in SHA256SUMS"), "{}", said(&output));
    assert!(release.has_installed_nothing());

    let release = Release::new();
    release.gh("exit 1");
    let output = release.install(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("was not built by a release of owner/plumbline"),
        "{}",
        said(&output)
    );
    assert!(release.has_installed_nothing());

    let release = Release::new();
    fs::remove_file(release.assets().join(&program)).unwrap();
    let output = release.install(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("is there such a release"),
        "{}",
        said(&output)
    );
    assert!(release.has_installed_nothing());
}

#[test]
fn provenance_is_left_out_only_when_that_is_asked_for() {
    let release = Release::new();
    let output = release.install(&["--checksums-only"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(!release.path("gh.txt").exists());
}

#[test]
fn wrong_options_are_named_before_anything_is_fetched() {
    let release = Release::new();
    for (arguments, part) in [
        (
            &["--repository", "no-slash"][..],
            "expected --repository OWNER/NAME, found \"no-slash\"",
        ),
        (&["--version", "1.2"], "such as v1.2.3, found \"1.2\""),
        (&["--nope"], "unknown option --nope"),
        (&["--sbom"], "--sbom needs a value"),
    ] {
        let output = release.install(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains(part), "{arguments:?}: {}", said(&output));
        assert!(!said(&output).contains("fetching"), "{arguments:?}");
    }
}

#[test]
fn a_run_without_a_report_has_a_summary_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("plumbline");
    fs::write(&program, "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/actions/conformance/summary.sh");
    let run = folder.path().join("run");
    let summary = || {
        let output = Command::new(&script).arg(&program).arg(&run).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    // The folder itself may be missing, too.
    assert!(summary().contains("ended before it wrote a report"));
    fs::create_dir_all(run.join("evidence")).unwrap();
    assert!(summary().contains("the artefact has the evidence"));
    fs::write(run.join("report.yaml"), "").unwrap();
    assert_eq!(
        summary(),
        format!("report {}/report.yaml --markdown\n", run.display())
    );
}
