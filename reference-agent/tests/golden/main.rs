//! Golden files: Kubernetes objects in, the dump of the maps out. Written from `SERVICES.md`.
//!
//! One file is one test. `GOLDEN_UPDATE=1` writes what was dumped into the files, to be read before it is committed:
//! a golden file says what the document says, not what the code does.
//!
//! | file | what |
//! |---|---|
//! | `file` | the format |
//! | `player`, `compare` | plays it, and compares |
//! | the folders | the files: which Services, their frontends, backends …, incidents 1 and 2 |

mod compare;
mod file;
mod player;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, ensure};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let trials = files.into_iter().map(|path| {
        let name = path.strip_prefix(&root).unwrap_or(&path).with_extension("");
        Trial::test(name.to_string_lossy().replace('/', "::"), move || {
            play(&path).map_err(|error| Failed::from(format!("{}: {error:#}", path.display())))
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
}

fn play(path: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(path).context("failed to read it")?;
    let steps = file::read(&text)?;
    let (dumps, result) = player::play(&steps);
    if env::var_os("GOLDEN_UPDATE").is_some_and(|value| value == "1") {
        let expected = steps
            .iter()
            .filter(|step| matches!(step, file::Step::Expect(_)))
            .count();
        ensure!(
            dumps.len() == expected,
            "{expected} dumps are expected, {} were made",
            dumps.len()
        );
        fs::write(path, file::with_dumps(&text, &dumps)?).context("failed to write it")?;
    }
    result
}
