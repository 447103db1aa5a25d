//! The files of a commit or of the work tree, by git's object names: equal contents have equal names in both.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    io::{ErrorKind, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};

/// Path → mode and object name.
pub(crate) type Files = BTreeMap<String, String>;

/// The files at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Files,
    /// The commit itself, or the one that the work tree is based on.
    pub(crate) commit: String,
    /// Whether there are uncommitted changes.
    pub(crate) changed: bool,
}

/// The files of a commit, by any revision that git understands.
///
/// # Errors
/// Git is missing, the folder is no repository, or the commit is unknown.
pub(crate) fn of_commit(root: &Path, revision: &str) -> anyhow::Result<Tree> {
    let named = git(
        root,
        &[
            "rev-parse",
            "--verify",
            "--end-of-options",
            &format!("{revision}^{{commit}}"),
        ],
        b"",
    )
    .with_context(|| format!("expected a commit that is here, found {revision:?}"))?;
    let commit = String::from_utf8_lossy(&named).trim().to_owned();
    let listed = git(root, &["ls-tree", "-r", "-z", "--full-tree", &commit], b"")?;
    let mut files = Files::new();
    for line in fields(&listed) {
        // MODE TYPE NAME, a tab, the path
        let (entry, path) = line
            .split_once('\t')
            .context("git ls-tree: a line without a path")?;
        files.insert(path.to_owned(), entry.to_owned());
    }
    Ok(Tree {
        files,
        commit,
        changed: false,
    })
}

/// The files of the work tree, including untracked ones, without ignored ones.
///
/// # Errors
/// As [`of_commit`]; a file can't be read.
pub(crate) fn of_work_tree(root: &Path) -> anyhow::Result<Tree> {
    let mut tree = of_commit(root, "HEAD")?;
    let status = git(
        root,
        &[
            "status",
            "--porcelain=v1",
            "-z",
            "--untracked-files=all",
            "--no-renames",
        ],
        b"",
    )?;
    let mut present = BTreeSet::new();
    for line in fields(&status) {
        // Two status letters and a space before the path.
        let path = line.get(3..).context("git status: a line without a path")?;
        tree.changed = true;
        match fs::symlink_metadata(root.join(path)) {
            Ok(_) => drop(present.insert(path.to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => drop(tree.files.remove(path)),
            Err(error) => return Err(error).with_context(|| format!("failed to look at {path}")),
        }
    }
    for path in present {
        let entry = entry(root, &path)?;
        tree.files.insert(path, entry);
    }
    Ok(tree)
}

/// A file's entry as `git ls-tree` would show it after a commit.
fn entry(root: &Path, path: &str) -> anyhow::Result<String> {
    let file = root.join(path);
    let about = fs::symlink_metadata(&file).with_context(|| format!("failed to look at {path}"))?;
    let read = || -> anyhow::Result<(&str, Vec<u8>)> {
        if about.is_symlink() {
            Ok(("120000", fs::read_link(&file)?.as_os_str().as_bytes().to_vec()))
        } else if about.permissions().mode() & 0o100 == 0 {
            Ok(("100644", fs::read(&file)?))
        } else {
            Ok(("100755", fs::read(&file)?))
        }
    };
    let (mode, content) = read().with_context(|| format!("failed to read {path}"))?;
    let name = git(root, &["hash-object", "--stdin"], &content)?;
    Ok(format!("{mode} blob {}", String::from_utf8_lossy(&name).trim()))
}

/// Texts that each end with NUL.
fn fields(octets: &[u8]) -> Vec<String> {
    let fields = octets
        .split(|octet| *octet == 0)
        .filter(|field| !field.is_empty());
    fields
        .map(|field| String::from_utf8_lossy(field).into_owned())
        .collect()
}

fn git(root: &Path, arguments: &[impl AsRef<OsStr>], input: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut child = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("failed to start git")?;
    // Git answers after it has read all of this.
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(input)
            .context("git did not read what it was given")?;
    }
    let output = child.wait_with_output()?;
    let shown = || {
        arguments
            .first()
            .map_or_else(String::new, |first| first.as_ref().to_string_lossy().into_owned())
    };
    if !output.status.success() {
        bail!(
            "git {} failed: {}",
            shown(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    ensure!(
        !output.stdout.is_empty() || shown() == "status",
        "git {} said nothing",
        shown()
    );
    Ok(output.stdout)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A repository with a commit of these files.
    pub(crate) fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let run = |arguments: &[&str]| {
            let status = Command::new("git")
                .args([
                    "-c",
                    "user.name=a",
                    "-c",
                    "user.email=a@example.com",
                    "-c",
                    "init.defaultBranch=main",
                ])
                .args(arguments)
                .current_dir(folder.path())
                .stdout(Stdio::null())
                .status();
            assert!(status.unwrap().success(), "{arguments:?}");
        };
        run(&["init", "--quiet"]);
        fs::write(folder.path().join("a"), "1\n").unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        fs::write(folder.path().join("b/c"), "2\n").unwrap();
        run(&["add", "."]);
        run(&["commit", "--quiet", "--message", "x"]);
        folder
    }

    #[test]
    fn a_clean_work_tree_is_its_commit() {
        let folder = repository();
        let tree = of_work_tree(folder.path()).unwrap();
        assert_eq!(tree, of_commit(folder.path(), "HEAD").unwrap());
        assert_eq!(tree.files.keys().collect::<Vec<_>>(), ["a", "b/c"]);
    }

    #[test]
    fn content_has_the_name_that_it_has_once_committed() {
        let folder = repository();
        let before = of_work_tree(folder.path()).unwrap();
        fs::write(folder.path().join("b/c"), "3\n").unwrap();
        fs::write(folder.path().join("new file"), "4\n").unwrap();
        fs::remove_file(folder.path().join("a")).unwrap();
        let changed = of_work_tree(folder.path()).unwrap();
        assert!(changed.changed && changed.commit == before.commit);
        assert_eq!(changed.files.keys().collect::<Vec<_>>(), ["b/c", "new file"]);
        assert_ne!(changed.files["b/c"], before.files["b/c"]);
        fs::write(folder.path().join("b/c"), "2\n").unwrap();
        fs::write(folder.path().join("a"), "1\n").unwrap();
        fs::remove_file(folder.path().join("new file")).unwrap();
        assert_eq!(of_work_tree(folder.path()).unwrap(), before);
    }

    #[test]
    fn what_may_be_executed_is_another_file() {
        let folder = repository();
        let before = of_work_tree(folder.path()).unwrap();
        fs::set_permissions(folder.path().join("a"), fs::Permissions::from_mode(0o755)).unwrap();
        let after = of_work_tree(folder.path()).unwrap();
        assert_eq!(after.files["a"], before.files["a"].replace("100644", "100755"));
    }

    #[test]
    fn no_such_commit_is_named() {
        let folder = repository();
        let error = of_commit(folder.path(), "nowhere").unwrap_err();
        assert!(error.to_string().contains("\"nowhere\""), "{error:#}");
    }
}
