//! Links that are pinned where an implementation pins its own, but attach to an empty cgroup.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

use doctor::{Manner, Place, Scope, inventory};
use lb_loader::{attach_link, pin_link};

use super::Held;
use crate::{
    error::message,
    journal::{Deed, Note, remove_folder},
};

/// The empty cgroup, and where links to it are pinned. Dropping it removes the cgroup.
#[derive(Debug)]
pub(super) struct Displaced {
    cgroup: PathBuf,
    note: Note,
    pins: Vec<String>,
}

impl Displaced {
    pub(super) fn pins(&self) -> &[String] {
        &self.pins
    }

    /// Replaces each pinned link that attaches one of these programs to the cgroup by a link to an empty one.
    pub(super) fn make(cgroup: &Path, held: &[Held], removed: bool) -> Result<Self, String> {
        let pinned = pinned(cgroup, held)?;
        let elsewhere = cgroup.join(format!("plumbline-elsewhere-{}", process::id()));
        let note = Note::write(Deed::MadeCgroup {
            at: elsewhere.clone(),
        })?;
        // Before the attempt: one that fails halfway is removed too.
        let mut displaced = Self {
            cgroup: elsewhere,
            note,
            pins: Vec::new(),
        };
        let made = fs::create_dir(&displaced.cgroup);
        made.map_err(|error| format!("can't make {}: {error}", displaced.cgroup.display()))?;
        for (held, pin) in pinned {
            let link = attach_link(&displaced.cgroup, held.hook, &held.program);
            let link = link.map_err(message)?;
            fs::remove_file(&pin).map_err(|error| format!("can't remove {}: {error}", pin.display()))?;
            pin_link(&link, &pin).map_err(message)?;
            displaced.pins.push(pin.display().to_string());
        }
        if removed {
            remove_folder(&displaced.cgroup)
                .map_err(|why| format!("can't remove {}: {why}", displaced.cgroup.display()))?;
        }
        Ok(displaced)
    }
}

impl Drop for Displaced {
    fn drop(&mut self) {
        match remove_folder(&self.cgroup) {
            Ok(_) => self.note.undone(),
            Err(why) => eprintln!("hold-programs: {} stays: {why}", self.cgroup.display()),
        }
    }
}

/// Pins of links that attach held programs.
pub(super) fn pins(cgroup: &Path, held: &[Held]) -> Result<Vec<String>, String> {
    let all = pinned(cgroup, held)?.into_iter();
    Ok(all.map(|(_, pin)| pin.display().to_string()).collect())
}

/// Held programs with the pins of the links that attach them.
fn pinned<'a>(cgroup: &Path, held: &'a [Held]) -> Result<Vec<(&'a Held, PathBuf)>, String> {
    let scope = Scope {
        cgroup: cgroup.to_owned(),
        bpffs: None,
        current: Vec::new(),
    };
    let seen = inventory(&scope).map_err(message)?;
    let mut pinned = Vec::new();
    for found in seen.attachments {
        let (
            Place::Cgroup {
                path: Some(path),
                attach_name,
                ..
            },
            Manner::Link { pinned_at, .. },
        ) = (&found.place, &found.manner)
        else {
            continue;
        };
        let of = |held: &&Held| held.program.id() == found.program.id && held.hook.name() == *attach_name;
        if path == cgroup
            && let Some(held) = held.iter().find(of)
        {
            pinned.extend(pinned_at.iter().map(|pin| (held, pin.clone())));
        }
    }
    Ok(pinned)
}
