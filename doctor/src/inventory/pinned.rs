//! What is pinned on the bpf file systems that this mount namespace shows.

use std::{
    fs, io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::Path,
};

use lb_loader::{Blind, mount_points, open_pinned};

use super::holders::{Keepers, Object, object};

/// Most files that are looked at: an implementation pins some dozens, and some for each pod.
const MOST: usize = 100_000;

/// Looks at all of them.
pub(crate) fn look(blind: &mut Vec<Blind>) -> Keepers {
    let mut keepers = Keepers::default();
    let mut left = MOST;
    let points = match mount_points("bpf") {
        Ok(points) => points,
        Err(error) => {
            blind.push(unseen("bpf file systems".to_owned(), error.to_string()));
            return keepers;
        }
    };
    for point in points {
        if let Err(error) = below(&point, &mut keepers, &mut left) {
            blind.push(unseen(
                format!("pins below {}", point.display()),
                error.to_string(),
            ));
        }
    }
    if left == 0 {
        let why = format!("no more than {MOST} are looked at");
        blind.push(unseen("some of the pins".to_owned(), why));
    }
    keepers
}

fn unseen(what: String, why: String) -> Blind {
    Blind {
        what,
        why,
        remedy: "look at them by `bpftool -f`".to_owned(),
    }
}

fn below(folder: &Path, keepers: &mut Keepers, left: &mut usize) -> io::Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if *left == 0 {
                return Ok(());
            }
            *left -= 1;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if let Some(object) = pinned(&path)? {
                keepers.pinned(object, path);
            }
        }
    }
    Ok(())
}

/// What is pinned at a path; `None`: something that is no program, map or link, or is gone.
fn pinned(path: &Path) -> io::Result<Option<Object>> {
    match open_pinned(path) {
        Ok(opened) => describe(&opened),
        // Symbolic links, and files that the kernel puts there itself.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENOENT | libc::EACCES | libc::EPERM)
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn describe(opened: &OwnedFd) -> io::Result<Option<Object>> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", opened.as_raw_fd()))?;
    Ok(object(&info))
}
