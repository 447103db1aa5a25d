//! `plumbline node undo`: undoes the deeds of helpers that were killed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use doctor::{Evicted, Found, Manner, Place, Scope, evict, inventory};
use nix::{
    errno::Errno,
    mount::{MntFlags, umount2},
};
use serde::{Deserialize, Serialize};

use super::{Deed, Noted, PREFIX, folder};
use crate::error::message;

/// How long a helper whose user has just died may take to undo its own deeds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at the notes.
const POLL: Duration = Duration::from_millis(20);

/// Arguments of `plumbline node undo`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The node's cgroup.
    #[arg(long, value_name = "FOLDER")]
    cgroup: PathBuf,
    /// Undo nothing: only read what is left.
    #[arg(long)]
    dry_run: bool,
}

/// What was done, a sentence for each deed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// Deeds that were still there, and are undone.
    pub undone: Vec<String>,
    /// Deeds of helpers that are alive, which undo them when their user ends.
    pub held: Vec<String>,
}

/// Undoes the noted deeds of dead processes on this node. Waits up to 10 s for living ones to undo their own. Idempotent.
/// A deed that can't be undone keeps its note and does not stop the others.
///
/// # Errors
/// In words, for stderr: the first deed that could not be undone.
pub async fn undo(arguments: &Arguments) -> Result<Undone, String> {
    if arguments.dry_run {
        return look_in(&folder());
    }
    undo_in(&folder(), &arguments.cgroup, PATIENCE).await
}

/// What [`undo_in`] would do now, without its wait: `undone` are deeds that it would try to undo.
fn look_in(folder: &Path) -> Result<Undone, String> {
    let (held, left): (Vec<_>, Vec<_>) = read(folder)?.into_iter().partition(|(_, noted)| noted.by.lives());
    let left = left
        .iter()
        .map(|(_, noted)| format!("{} is left by a helper that was killed", noted.deed));
    Ok(Undone {
        undone: left.collect(),
        held: held.iter().map(|(_, noted)| words_of_held(noted)).collect(),
    })
}

/// Why a deed is not undone: its helper is alive.
fn words_of_held(Noted { by, deed }: &Noted) -> String {
    let by = by.id;
    format!("{deed} belongs to a helper that is alive, process {by}; it undoes it when its user ends")
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
    let held = held.iter().map(|(_, noted)| words_of_held(noted));
    let mut result = Undone {
        undone: Vec::new(),
        held: held.collect(),
    };
    let mut first = Ok(());
    for (path, noted) in left {
        let undone = undo_deed(&noted.deed, cgroup).and_then(|was_there| {
            remove(&path).map_err(|error| format!("can't remove {}: {error}", path.display()))?;
            Ok(was_there)
        });
        match undone {
            Ok(true) => result.undone.push(format!("{} is undone", noted.deed)),
            Ok(false) => {}
            Err(why) => first = first.and(Err(format!("{} stays: {why}", noted.deed))),
        }
    }
    first.map(|()| result)
}

/// All notes, by file name. An empty one was interrupted before its deed or right after it, and is left out.
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
            // Its helper has just undone the deed.
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

/// Returns whether the deed was still there.
fn undo_deed(deed: &Deed, cgroup: &Path) -> Result<bool, String> {
    match deed {
        Deed::Mounted { at } => unmount(at),
        Deed::MadeCgroup { at } => remove_folder(at),
        Deed::AtCgroup { .. } | Deed::AtDevice { .. } => detach(deed, cgroup),
    }
}

/// Unmounts what is mounted on a folder, and removes the folder. Returns whether it was there.
pub(crate) fn unmount(at: &Path) -> Result<bool, String> {
    match umount2(at, MntFlags::MNT_DETACH) {
        // Nothing is mounted there.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => remove_folder(at),
        Err(errno) => Err(errno.to_string()),
    }
}

/// Removes an empty folder or cgroup. Returns whether it was there.
pub(crate) fn remove_folder(folder: &Path) -> Result<bool, String> {
    match fs::remove_dir(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

fn detach(deed: &Deed, cgroup: &Path) -> Result<bool, String> {
    let scope = Scope {
        cgroup: cgroup.to_owned(),
        bpffs: None,
        current: Vec::new(),
    };
    let mut was_there = false;
    let seen = inventory(&scope).map_err(message)?;
    for found in seen.attachments.iter().filter(|found| is(found, deed)) {
        was_there |= evict(found, true).map_err(message)? == Evicted::Detached;
    }
    Ok(was_there)
}

/// Whether an attachment is a noted one. Attachments by links are never noted.
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

    /// A process with this one's number that began long ago.
    fn dead() -> Process {
        let own = Process::this().unwrap();
        Process { began: 0, ..own }
    }

    async fn undo_here(folder: &Path) -> Result<Undone, String> {
        undo_in(folder, Path::new("/sys/fs/cgroup"), Duration::ZERO).await
    }

    #[tokio::test]
    async fn deeds_of_a_dead_helper_are_undone_once_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (made, others) = (folder.path().join("made"), folder.path().join("others"));
        fs::create_dir(&made).unwrap();
        fs::create_dir(&others).unwrap();
        let gone = folder.path().join("gone");
        for (name, at) in [("1-0", &made), ("1-1", &gone)] {
            note(folder.path(), name, dead(), Deed::MadeCgroup { at: at.clone() });
        }
        let result = undo_here(folder.path()).await.unwrap();
        assert_eq!(
            result.undone,
            [format!("the cgroup {} is undone", made.display())]
        );
        assert!(result.held.is_empty() && !made.exists() && others.exists());
        assert_eq!(undo_here(folder.path()).await, Ok(Undone::default()));
        assert_eq!(read(folder.path()), Ok(Vec::new()));
    }

    #[tokio::test]
    async fn a_deed_that_cannot_be_undone_keeps_its_note_and_does_not_stop_the_others() {
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
    async fn deeds_of_a_living_helper_stay() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        fs::create_dir(&made).unwrap();
        let own = Process::this().unwrap();
        let kept = note(folder.path(), "1-0", own, Deed::MadeCgroup { at: made.clone() });
        let result = undo_here(folder.path()).await.unwrap();
        assert!(result.undone.is_empty() && made.exists() && kept.exists());
        let [held] = result.held.as_slice() else {
            panic!("expected one, found {:?}", result.held)
        };
        assert!(held.contains(&format!("process {}", own.id)), "{held}");
    }

    #[test]
    fn empty_notes_are_left_out_and_unreadable_ones_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(&folder.path().join("none")), Ok(Vec::new()));
        fs::write(folder.path().join(format!("{PREFIX}1-0")), "").unwrap();
        fs::write(folder.path().join("another-owners"), "x").unwrap();
        assert_eq!(read(folder.path()), Ok(Vec::new()));
        fs::write(folder.path().join(format!("{PREFIX}1-1")), "x").unwrap();
        let why = read(folder.path()).unwrap_err();
        assert!(why.contains("plumbline-note-1-1"), "{why}");
    }
}
