//! One program of the plan.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use guest::{End, Event, MOST_TOLD, Step};
use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        wait::{WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// Where programs are.
const PROGRAMS: &str = "/bin";

/// Runs a program to its end, or to its limit, and ends whatever it has left.
pub(crate) fn run(step: &Step, tell: &(impl Fn(Event) + Sync)) {
    let name = || step.name.clone();
    tell(Event::Begun { step: name() });
    let begun = Instant::now();
    let end = supervise(step, tell).unwrap_or_else(|why| {
        tell(Event::Line {
            step: name(),
            text: why,
        });
        End::Code(127)
    });
    let mut left = MOST_TOLD;
    for path in &step.files {
        let untold = tell_files(Path::new(path), &mut left, &|path, text| {
            tell(Event::File {
                step: name(),
                path: path.display().to_string(),
                text,
            });
        });
        if untold > 0 {
            tell(Event::Line {
                step: name(),
                text: format!(
                    "{untold} files of {path} are not told: all of them have more than {MOST_TOLD} bytes"
                ),
            });
        }
    }
    tell(Event::Ended {
        step: name(),
        end,
        milliseconds: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
}

/// Tells a file, or the files of a folder and those in it, in the order of their names, as long as there are bytes left for a
/// whole one; returns how many it has not told. What is not there, or neither, is no file.
fn tell_files(path: &Path, left: &mut usize, tell: &dyn Fn(&Path, String)) -> usize {
    let Ok(about) = path.symlink_metadata() else {
        return 0;
    };
    if about.is_dir() {
        let mut inside: Vec<PathBuf> = fs::read_dir(path)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        inside.sort_unstable();
        return inside.iter().map(|path| tell_files(path, left, tell)).sum();
    }
    if !about.is_file() {
        return 0;
    }
    let Some(rest) = usize::try_from(about.len())
        .ok()
        .and_then(|length| left.checked_sub(length))
    else {
        return 1;
    };
    *left = rest;
    fs::read(path).map_or(1, |bytes| {
        tell(path, String::from_utf8_lossy(&bytes).into_owned());
        0
    })
}

fn supervise(step: &Step, tell: &(impl Fn(Event) + Sync)) -> Result<End, String> {
    let [program, arguments @ ..] = step.command.as_slice() else {
        return Err("the plan names no program".to_owned());
    };
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PROGRAMS)
        .env("TMPDIR", "/tmp")
        .envs(&step.environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("failed to start {program}: {error}"))?;
    let outputs = [
        child
            .stdout
            .take()
            .map(|output| Box::new(output) as Box<dyn Read + Send>),
        child
            .stderr
            .take()
            .map(|output| Box::new(output) as Box<dyn Read + Send>),
    ];
    let process = Pid::from_raw(child.id().cast_signed());
    let (ended, until) = channel::<()>();
    let limit = Duration::from_secs(step.limit_seconds);
    thread::scope(|scope| {
        for output in outputs.into_iter().flatten() {
            scope.spawn(|| relay(step, output, tell));
        }
        let watch = scope.spawn(move || match until.recv_timeout(limit) {
            Err(RecvTimeoutError::Timeout) => {
                kill_all();
                true
            }
            _ => false,
        });
        let end = wait(process);
        drop(ended);
        let was_late = watch.join().unwrap_or(true);
        // So that nobody holds the outputs, and the next program has the machine to itself.
        kill_all();
        end.map(|end| if was_late { End::Limit } else { end })
    })
}

/// Tells each line of an output, until nobody holds it.
fn relay(step: &Step, output: impl Read, tell: &impl Fn(Event)) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        tell(Event::Line {
            step: step.name.clone(),
            text: String::from_utf8_lossy(&line).trim_end().to_owned(),
        });
        line.clear();
    }
}

/// Every process but this one.
fn kill_all() {
    // There may be none.
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
}

/// Waits for the program; others that end meanwhile, whose parents have ended before them, are this process's to bury.
fn wait(process: Pid) -> Result<End, String> {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(ended, code)) if ended == process => return Ok(End::Code(code)),
            Ok(WaitStatus::Signaled(ended, signal, _)) if ended == process => {
                return Ok(End::Signal(signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(format!("failed to wait for the program: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn files_of_folders_are_told_as_long_as_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("b")).unwrap();
        for (name, text) in [("a", "12"), ("b/a", "123456"), ("b/b", "1234"), ("c", "1")] {
            fs::write(at(name), text).unwrap();
        }
        std::os::unix::fs::symlink(at("a"), at("d")).unwrap();
        let told = |path: &Path, most: usize| {
            let all = RefCell::new(Vec::new());
            let mut left = most;
            let untold = tell_files(path, &mut left, &|path, text| {
                all.borrow_mut().push((path.to_path_buf(), text));
            });
            let names = all.into_inner().into_iter().map(|(path, text)| {
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
                path.strip_prefix(folder.path()).unwrap().display().to_string()
            });
            (names.collect::<Vec<_>>().join(" "), untold, left)
        };
        assert_eq!(told(folder.path(), 13), ("a b/a b/b c".to_owned(), 0, 0));
        assert_eq!(told(folder.path(), 8), ("a b/a".to_owned(), 2, 0));
        assert_eq!(told(folder.path(), 7), ("a b/b c".to_owned(), 1, 0));
        assert_eq!(told(&at("a"), 2), ("a".to_owned(), 0, 0));
        assert_eq!(told(&at("none"), 2), (String::new(), 0, 2));
    }
}
