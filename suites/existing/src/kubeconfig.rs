//! Finds and reads kubeconfigs, and explains errors.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use cluster::user_file::{self, MOST_BYTES};
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use super::KubernetesError;

/// The files that form one kubeconfig; at least one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KubeconfigFiles(Vec<PathBuf>);

impl KubeconfigFiles {
    /// The named file; without it, those of `$KUBECONFIG`; without these, `~/.kube/config`.
    pub(super) fn of(named: Option<&Path>) -> Self {
        Self::chosen(named, env::var_os("KUBECONFIG"))
    }

    fn chosen(named: Option<&Path>, variable: Option<OsString>) -> Self {
        if let Some(file) = named {
            return Self(vec![file.to_owned()]);
        }
        let variable = variable.unwrap_or_default();
        // kubectl ignores empty names, too.
        let paths = env::split_paths(&variable).filter(|path| !path.as_os_str().is_empty());
        let paths: Vec<PathBuf> = paths.collect();
        if paths.is_empty() {
            let home = env::home_dir().unwrap_or_default();
            return Self(vec![home.join(".kube/config")]);
        }
        Self(paths)
    }

    /// The client configuration of a context; by default, of the current one.
    pub(super) async fn config(&self, context: Option<&str>) -> Result<Config, KubernetesError> {
        let mut merged = Kubeconfig::default();
        for file in &self.0 {
            let next = read(file).map_err(|why| KubernetesError::Kubeconfig {
                files: file.display().to_string(),
                why,
            })?;
            let both = merged.merge(next);
            merged = both.map_err(|error| self.wrong(words(&error, &[])))?;
        }
        let contexts: Vec<String> = merged.contexts.iter().map(|one| one.name.clone()).collect();
        let options = KubeConfigOptions {
            context: context.map(str::to_owned),
            ..KubeConfigOptions::default()
        };
        let config = Config::from_custom_kubeconfig(merged, &options).await;
        config.map_err(|error| self.wrong(words(&error, &contexts)))
    }

    /// The error for a readable kubeconfig that can't be used.
    pub(super) fn wrong(&self, why: String) -> KubernetesError {
        let files: Vec<String> = self.0.iter().map(|file| file.display().to_string()).collect();
        KubernetesError::Kubeconfig {
            files: files.join(":"),
            why,
        }
    }
}

fn read(file: &Path) -> Result<Kubeconfig, String> {
    let text = user_file::read(file, MOST_BYTES).map_err(|error| error.to_string())?;
    let config = if file.is_file() {
        // Paths in the file are relative to its folder.
        Kubeconfig::read_from(file)
    } else {
        // A pipe can be read only once.
        Kubeconfig::from_yaml(&text)
    };
    config.map_err(|error| words(&error, &[]))
}

fn words(error: &KubeconfigError, contexts: &[String]) -> String {
    match error {
        // The lines of the file are left out, as they hold tokens and keys.
        KubeconfigError::Parse(error) => {
            format!("expected a kubeconfig in YAML: {}", error.without_snippet())
        }
        KubeconfigError::ReadConfig(error, _) => error.to_string(),
        KubeconfigError::CurrentContextNotSet => "expected a current-context, found none".to_owned(),
        KubeconfigError::LoadContext(name) if contexts.is_empty() => {
            format!("expected the context {name}, found no context")
        }
        KubeconfigError::LoadContext(name) => {
            format!("expected the context {name}, found {}", contexts.join(", "))
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("expected the cluster {name}, which the context names, found none of this name")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    const PART: &str =
        "contexts: [{name: one, context: {cluster: c}}, {name: two, context: {cluster: none}}]\n";

    async fn error(files: &KubeconfigFiles, context: Option<&str>) -> String {
        let found = files.config(context).await;
        found.expect_err("a kubeconfig that can't be used").to_string()
    }

    #[test]
    fn a_named_file_comes_before_the_variable_and_that_before_the_home_folder() {
        let chosen = |named: Option<&str>, variable: Option<&str>| {
            KubeconfigFiles::chosen(named.map(Path::new), variable.map(OsString::from)).0
        };
        assert_eq!(chosen(Some("a"), Some("b")), [Path::new("a")]);
        assert_eq!(chosen(None, Some("b::c")), [Path::new("b"), Path::new("c")]);
        for variable in [None, Some(""), Some(":")] {
            assert!(chosen(None, variable)[0].ends_with(".kube/config"));
        }
    }

    #[tokio::test]
    async fn the_file_is_named_with_what_is_wrong_and_none_of_its_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kubeconfig");
        let files = KubeconfigFiles::of(Some(&path));
        let named = format!("failed to use the kubeconfig {}: ", path.display());
        let missing = error(&files, None).await;
        assert!(
            missing.starts_with(&format!("{named}No such file")) && missing.contains("--kubeconfig FILE"),
            "{missing}"
        );
        for (text, context, why) in [
            ("", None, "expected a current-context, found none; "),
            ("", Some("x"), "expected the context x, found no context; "),
            (PART, Some("x"), "expected the context x, found one, two; "),
            (
                PART,
                Some("two"),
                "expected the cluster none, which the context names",
            ),
            ("token: secret\nfoo: [\n", None, "expected a kubeconfig in YAML: "),
        ] {
            fs::write(&path, text).expect("written");
            let found = error(&files, context).await;
            assert!(found.starts_with(&format!("{named}{why}")), "{text}: {found}");
            assert!(!found.contains("secret"), "{found}");
        }
    }

    #[tokio::test]
    async fn a_device_is_named_and_not_read() {
        for device in ["/dev/null", "/dev/zero"] {
            let found = error(&KubeconfigFiles::of(Some(Path::new(device))), None).await;
            assert!(
                found.starts_with(&format!(
                    "failed to use the kubeconfig {device}: expected a regular file"
                )),
                "{found}"
            );
        }
    }

    #[tokio::test]
    async fn several_files_are_one_and_a_pipe_is_one_of_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        fs::write(&first, PART).expect("written");
        mkfifo(&second, Mode::S_IRWXU).expect("a pipe");
        let rest =
            "current-context: one\nclusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443'}}]\n";
        let pipe = second.clone();
        let writer = std::thread::spawn(move || fs::write(pipe, rest));
        let config = KubeconfigFiles(vec![first, second]).config(None).await;
        writer.join().expect("ended").expect("written");
        assert_eq!(config.expect("a kubeconfig").cluster_url.host(), Some("10.0.0.1"));
    }
}
