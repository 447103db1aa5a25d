//! `plumbline lab kubeconfig` and `plumbline lab logs`.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use lab::{DEFAULT_NAME, LabCluster};

#[derive(Debug, clap::Args)]
pub(crate) struct KubeconfigArgs {
    /// The lab's name.
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
    /// Print the path of the file instead of its contents.
    #[arg(long)]
    path: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogsArgs {
    /// The lab's name.
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
    /// `supervisor`, a node's name (its agent) or NAMESPACE/POD; lists the files by default.
    what: Option<String>,
}

pub(super) async fn kubeconfig(args: KubeconfigArgs) -> anyhow::Result<ExitCode> {
    let lab = LabCluster::attach(&args.name).await?;
    let path = lab.kubeconfig();
    if args.path {
        println!("{}", path.display());
    } else {
        print_file(path)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn logs(args: LogsArgs) -> anyhow::Result<ExitCode> {
    let folder = LabCluster::attach(&args.name).await?.logs();
    match args.what {
        Some(what) => print_file(&log(&folder, &what)?)?,
        None => {
            let mut files: Vec<PathBuf> = fs::read_dir(&folder)
                .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
                .with_context(|| format!("failed to list {}", folder.display()))?;
            files.sort();
            for file in files {
                println!("{}", file.display());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn log(folder: &Path, what: &str) -> anyhow::Result<PathBuf> {
    let file = match what.split_once('/') {
        Some((namespace, pod)) if !pod.contains('/') => format!("{namespace}_{pod}.log"),
        None if what == "supervisor" => "supervisor.log".to_owned(),
        None => format!("agent-{what}.log"),
        Some(_) => bail!("expected supervisor, a node's name or NAMESPACE/POD, found '{what}'"),
    };
    let path = folder.join(file);
    if !path.is_file() {
        bail!(
            "there is no log of {what} ({}); `plumbline lab logs` lists what there is",
            path.display()
        );
    }
    Ok(path)
}

/// A reader that closes the pipe is no error.
fn print_file(path: &Path) -> anyhow::Result<()> {
    let mut file = File::open(path).with_context(|| format!("failed to open {}", path.display()))?;
    match io::copy(&mut file, &mut io::stdout().lock()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).with_context(|| format!("failed to print {}", path.display()))
        }
        _ => Ok(()),
    }
}
