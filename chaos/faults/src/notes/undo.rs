//! `plumbline node undo`: undoes what helpers have done that were killed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use doctor::{Evicted, Found, Manner, Place, Scope, evict, inventory};
use serde::{Deserialize, Serialize};

use super::{Deed, Noted, PREFIX, folder};
use crate::holder::{ENDING, POLL, remove_folder, unmount};

/// Arguments of `plumbline node undo`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The node's cgroup.
    #[arg(long, value_name = "FOLDER")]
    cgroup: PathBuf,
}

/// What became of it, in words, one for each deed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// What was still there, and is undone.
    pub undone: Vec<String>,
    /// What helpers hold that live: they undo it when those who use them are gone.
    pub held: Vec<String>,
}

/// Undoes what notes on this node say whose processes are dead. A helper whose user has just died gets ten seconds to undo
/// its own. Idempotent; what can't be undone keeps nothing else, and its note stays.
///
/// # Errors
/// In words, for stderr: the first that could not be undone.
pub async fn undo(arguments: &Arguments) -> Result<Undone, String> {
    undo_in(&folder(), &arguments.cgroup, ENDING).await
}

async fn undo_in(folder: &Path, cgroup: &Path, patience: Duration) -> Result<Undone, String> {
    let begun = Instant::now();
    let notes = loop {
        let notes = read(folder)?;
        if begun.elapsed() >= patience || !notes.iter().any(|(_, noted)| noted.by.lives()) {
            break notes;
        }
        tokio::time::sleep(POLL).await;
    };
    let (held, left): (Vec<_>, Vec<_>) = notes.into_iter().partition(|(_, noted)| noted.by.lives());
    let held = held.iter().map(|(_, Noted { by, deed })| {
        let by = by.id;
        format!("{deed} is a helper's that lives, process {by}; it ends it when its user is gone")
    });
    let mut told = Undone {
        undone: Vec::new(),
        held: held.collect(),
    };
    let mut first = Ok(());
    for (path, noted) in left {
        let undone = take_back(&noted.deed, cgroup).and_then(|was_there| {
            remove(&path).map_err(|error| format!("can't remove {}: {error}", path.display()))?;
            Ok(was_there)
        });
        match undone {
            Ok(true) => told.undone.push(format!("{} is undone", noted.deed)),
            Ok(false) => {}
            Err(why) => first = first.and(Err(format!("{} stays: {why}", noted.deed))),
        }
    }
    first.map(|()| told)
}

/// All notes, in the order of their files' names. One that is empty was broken off before its deed, or right after it.
fn read(folder: &Path) -> Result<Vec<(PathBuf, Noted)>, String> {
    let failed = |path: &Path, why: &dyn std::fmt::Display| format!("can't read {}: {why}", path.display());
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| failed(folder, &error))?,
    };
    let mut notes = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| failed(folder, &error))?.path();
        let is_note = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        if !is_note {
            continue;
        }
        let text = match fs::read_to_string(&path) {
            // Its helper has just undone it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            text => text.map_err(|error| failed(&path, &error))?,
        };
        if !text.is_empty() {
            notes.push((
                path.clone(),
                serde_json::from_str(&text).map_err(|error| failed(&path, &error))?,
            ));
        }
    }
    notes.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(notes)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Whether it was still there.
fn take_back(deed: &Deed, cgroup: &Path) -> Result<bool, String> {
    match deed {
        Deed::Mounted { at } => unmount(at),
        Deed::MadeCgroup { at } => remove_folder(at),
        Deed::AtCgroup { .. } | Deed::AtDevice { .. } => detach(deed, cgroup),
    }
}

fn detach(deed: &Deed, cgroup: &Path) -> Result<bool, String> {
    let scope = Scope {
        cgroup: cgroup.to_owned(),
        bpffs: None,
        current: Vec::new(),
    };
    let mut was_there = false;
    let seen = inventory(&scope).map_err(|error| error.to_string())?;
    for found in seen.attachments.iter().filter(|found| is(found, deed)) {
        was_there |= evict(found, true).map_err(|error| error.to_string())? == Evicted::Detached;
    }
    Ok(was_there)
}

/// What a link attaches is none of these.
fn is(found: &Found, deed: &Deed) -> bool {
    if matches!(found.manner, Manner::Link { .. }) {
        return false;
    }
    match (&found.place, deed) {
        (
            Place::Cgroup { id, attach_name, .. },
            Deed::AtCgroup {
                cgroup,
                hook,
                program,
            },
        ) => id == cgroup && attach_name == hook && found.program.id == *program,
        (
            Place::Device {
                index: at,
                name: Some(_),
                layer: of,
                direction: towards,
            },
            Deed::AtDevice {
                index,
                layer,
                direction,
                program,
            },
        ) => {
            (at, of.name(), towards.name()) == (index, layer.as_str(), direction.as_str())
                && found.program.id == *program
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Process, *};

    fn note(folder: &Path, name: &str, by: Process, deed: Deed) -> PathBuf {
        let path = folder.join(format!("{PREFIX}{name}"));
        fs::write(&path, serde_json::to_string(&Noted { by, deed }).unwrap()).unwrap();
        path
    }

    /// Of this process's number, long ago.
    fn dead() -> Process {
        let own = Process::this().unwrap();
        Process { began: 0, ..own }
    }

    async fn undo_here(folder: &Path) -> Result<Undone, String> {
        undo_in(folder, Path::new("/sys/fs/cgroup"), Duration::ZERO).await
    }

    #[tokio::test]
    async fn what_a_dead_helper_noted_is_undone_once_and_what_others_did_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (made, others) = (folder.path().join("made"), folder.path().join("others"));
        fs::create_dir(&made).unwrap();
        fs::create_dir(&others).unwrap();
        let gone = folder.path().join("gone");
        for (name, at) in [("1-0", &made), ("1-1", &gone)] {
            note(folder.path(), name, dead(), Deed::MadeCgroup { at: at.clone() });
        }
        let told = undo_here(folder.path()).await.unwrap();
        assert_eq!(told.undone, [format!("the cgroup {} is undone", made.display())]);
        assert!(told.held.is_empty() && !made.exists() && others.exists());
        assert_eq!(undo_here(folder.path()).await, Ok(Undone::default()));
        assert_eq!(read(folder.path()), Ok(Vec::new()));
    }

    #[tokio::test]
    async fn what_cannot_be_undone_is_said_and_keeps_its_note_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (full, made) = (folder.path().join("full"), folder.path().join("made"));
        fs::create_dir_all(full.join("below")).unwrap();
        fs::create_dir(&made).unwrap();
        let kept = note(
            folder.path(),
            "1-0",
            dead(),
            Deed::MadeCgroup { at: full.clone() },
        );
        note(
            folder.path(),
            "1-1",
            dead(),
            Deed::MadeCgroup { at: made.clone() },
        );
        let why = undo_here(folder.path()).await.unwrap_err();
        assert!(
            why.starts_with(&format!("the cgroup {} stays: ", full.display())),
            "{why}"
        );
        assert!(kept.exists() && !made.exists());
    }

    #[tokio::test]
    async fn what_a_helper_holds_that_lives_is_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        fs::create_dir(&made).unwrap();
        let own = Process::this().unwrap();
        let kept = note(folder.path(), "1-0", own, Deed::MadeCgroup { at: made.clone() });
        let told = undo_here(folder.path()).await.unwrap();
        assert!(told.undone.is_empty() && made.exists() && kept.exists());
        let [held] = told.held.as_slice() else {
            panic!("expected one, found {:?}", told.held)
        };
        assert!(held.contains(&format!("process {}", own.id)), "{held}");
    }

    #[test]
    fn a_note_that_was_broken_off_is_none_and_one_that_is_no_note_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(&folder.path().join("none")), Ok(Vec::new()));
        fs::write(folder.path().join(format!("{PREFIX}1-0")), "").unwrap();
        fs::write(folder.path().join("somebody-elses"), "x").unwrap();
        assert_eq!(read(folder.path()), Ok(Vec::new()));
        fs::write(folder.path().join(format!("{PREFIX}1-1")), "x").unwrap();
        let why = read(folder.path()).unwrap_err();
        assert!(why.contains("plumbline-note-1-1"), "{why}");
    }
}
