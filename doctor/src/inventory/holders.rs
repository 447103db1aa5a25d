//! What keeps programs, maps and links alive: processes, by their descriptors; and pins.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use lb_loader::{Blind, processes};

use super::{Holder, MapDescription, ProgramDescription};

/// Most processes whose descriptors are looked at.
const PROCESSES: usize = 32_768;
/// How long that may take.
const TIME: Duration = Duration::from_secs(5);
/// Inode of the process namespace that the kernel starts with (`PROC_PID_INIT_INO`).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Something of bpf(2), by id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Object {
    Program(u32),
    Map(u32),
    Link(u32),
}

/// What keeps each alive.
#[derive(Debug, Default)]
pub(crate) struct Keepers(HashMap<Object, (Vec<PathBuf>, Vec<Holder>)>);

impl Keepers {
    pub(super) fn pinned(&mut self, object: Object, path: PathBuf) {
        self.0.entry(object).or_default().0.push(path);
    }

    fn held(&mut self, object: Object, holder: &Holder) {
        let (_, holders) = self.0.entry(object).or_default();
        if holders.last() != Some(holder) {
            holders.push(holder.clone());
        }
    }

    pub(crate) fn extend(&mut self, other: Self) {
        for (object, (pins, holders)) in other.0 {
            let all = self.0.entry(object).or_default();
            all.0.extend(pins);
            all.1.extend(holders);
        }
    }

    /// Pins and holders of a link.
    pub(super) fn of_link(&self, id: u32) -> (Vec<PathBuf>, Vec<Holder>) {
        self.of(Object::Link(id))
    }

    fn of(&self, object: Object) -> (Vec<PathBuf>, Vec<Holder>) {
        self.0.get(&object).cloned().unwrap_or_default()
    }

    /// Says of a program and its maps who keeps them.
    pub(crate) fn fill(&self, program: &mut ProgramDescription) {
        (program.pinned_at, program.held_by) = self.of(Object::Program(program.id));
        for map in &mut program.maps {
            self.fill_map(map);
        }
    }

    /// Says of a map who keeps it.
    pub(super) fn fill_map(&self, map: &mut MapDescription) {
        (map.pinned_at, map.held_by) = self.of(Object::Map(map.id));
    }
}

/// Looks at the descriptors of all processes that can be seen.
pub(crate) fn look(blind: &mut Vec<Blind>) -> Keepers {
    let mut keepers = Keepers::default();
    let begun = Instant::now();
    let mut unreadable = 0_usize;
    let processes = match processes() {
        Ok(processes) => processes,
        Err(error) => {
            blind.push(not_seen("processes", error.to_string(), "mount /proc"));
            return keepers;
        }
    };
    if !fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == FIRST_NAMESPACE) {
        blind.push(not_seen(
            "processes of other process namespaces",
            "this one is not the machine's".to_owned(),
            "run in the host's process namespace (hostPID)",
        ));
    }
    for (seen, pid) in processes.iter().enumerate() {
        if seen >= PROCESSES || begun.elapsed() > TIME {
            blind.push(not_seen(
                &format!("{} of {} processes", processes.len() - seen, processes.len()),
                format!("no more than {PROCESSES} are looked at, for {} s", TIME.as_secs()),
                "look for holders by `grep -l _id: /proc/*/fdinfo/*`",
            ));
            break;
        }
        if let Err(error) = process(*pid, &mut keepers)
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            unreadable += 1;
        }
    }
    if unreadable > 0 {
        blind.push(not_seen(
            &format!("descriptors of {unreadable} processes"),
            "the kernel does not show them".to_owned(),
            "grant CAP_SYS_PTRACE",
        ));
    }
    keepers
}

fn not_seen(what: &str, why: String, remedy: &str) -> Blind {
    Blind {
        what: what.to_owned(),
        why,
        remedy: remedy.to_owned(),
    }
}

/// What a process holds; one that ends meanwhile holds nothing.
fn process(pid: u32, keepers: &mut Keepers) -> io::Result<()> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let mut holder = None;
    for entry in fs::read_dir(folder.join("fd"))? {
        let entry = entry?;
        // `anon_inode:bpf-prog`, `bpf-map`, `bpf_link`; others are not asked what they are.
        let bpf = fs::read_link(entry.path()).is_ok_and(|link| {
            let link = link.as_os_str().as_encoded_bytes();
            link.starts_with(b"anon_inode:bpf") || link.starts_with(b"anon_inode:[bpf")
        });
        if !bpf {
            continue;
        }
        let Ok(info) = fs::read_to_string(folder.join("fdinfo").join(entry.file_name())) else {
            continue;
        };
        if let Some(object) = object(&info) {
            let holder = holder.get_or_insert_with(|| Holder {
                pid,
                command: command(&folder),
            });
            keepers.held(object, holder);
        }
    }
    Ok(())
}

/// A process's name.
fn command(folder: &Path) -> String {
    fs::read_to_string(folder.join("comm")).map_or_else(|_| String::new(), |name| name.trim_end().to_owned())
}

/// What a descriptor is of, by its fdinfo. A link's also names its program, so that links come first.
pub(super) fn object(info: &str) -> Option<Object> {
    let number = |key: &str| {
        info.lines()
            .find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
    };
    number("link_id:")
        .map(Object::Link)
        .or_else(|| number("map_id:").map(Object::Map))
        .or_else(|| number("prog_id:").map(Object::Program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_says_what_it_is_of() {
        let link = "pos:\t0\nlink_type:\tcgroup\nlink_id:\t5\nprog_tag:\t0\nprog_id:\t7\ncgroup_id:\t1\n";
        assert_eq!(object(link), Some(Object::Link(5)));
        assert_eq!(object("map_type:\t1\nmap_id:\t9\n"), Some(Object::Map(9)));
        assert_eq!(object("prog_type:\t1\nprog_id:\t7\n"), Some(Object::Program(7)));
        assert_eq!(object("pos:\t0\n"), None);
    }
}
