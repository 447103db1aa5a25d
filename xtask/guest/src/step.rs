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

use guest::{End, Event, MOST_SENT, Step};
use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        wait::{WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// Folder of the programs.
const PROGRAMS: &str = "/bin";

/// Runs a program to its end or its limit, and kills the processes that it has left.
pub(crate) fn run(step: &Step, send: &(impl Fn(Event) + Sync)) {
    let name = || step.name.clone();
    send(Event::Begun { step: name() });
    let begun = Instant::now();
    let end = supervise(step, send).unwrap_or_else(|why| {
        send(Event::Line {
            step: name(),
            text: why,
        });
        End::Code(127)
    });
    let mut left = MOST_SENT;
    for path in &step.files {
        let omitted = send_files(Path::new(path), &mut left, &|path, bytes| {
            send(Event::File {
                step: name(),
                path: path.display().to_string(),
                bytes,
            });
        });
        if omitted > 0 {
            send(Event::Line {
                step: name(),
                text: format!(
                    "{omitted} files of {path} are omitted: all of them have more than {MOST_SENT} bytes"
                ),
            });
        }
    }
    send(Event::Ended {
        step: name(),
        end,
        milliseconds: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
}

/// Sends a file, or the files below a folder in the order of their names, as long as there are bytes left for a whole
/// one; returns the number of omitted files. Missing paths and special files are ignored.
fn send_files(path: &Path, left: &mut usize, send: &dyn Fn(&Path, Vec<u8>)) -> usize {
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
        return inside.iter().map(|path| send_files(path, left, send)).sum();
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
        send(path, bytes);
        0
    })
}

fn supervise(step: &Step, send: &(impl Fn(Event) + Sync)) -> Result<End, String> {
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
            scope.spawn(|| relay(step, output, send));
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
        // Closes the outputs, and leaves the machine to the next program.
        kill_all();
        end.map(|end| if was_late { End::Limit } else { end })
    })
}

/// Sends each line of an output, until all writers have closed it.
fn relay(step: &Step, output: impl Read, send: &impl Fn(Event)) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        send(Event::Line {
            step: step.name.clone(),
            text: String::from_utf8_lossy(&line).trim_end().to_owned(),
        });
        line.clear();
    }
}

/// Kills every process but this one.
fn kill_all() {
    // There may be none.
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
}

/// Waits for the program, and reaps orphaned processes meanwhile.
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
            let omitted = send_files(path, &mut left, &|path, bytes| {
                all.borrow_mut().push((path.to_path_buf(), bytes));
            });
            let names = all.into_inner().into_iter().map(|(path, bytes)| {
                assert_eq!(fs::read(&path).unwrap(), bytes);
                path.strip_prefix(folder.path()).unwrap().display().to_string()
            });
            (names.collect::<Vec<_>>().join(" "), omitted, left)
        };
        assert_eq!(told(folder.path(), 13), ("a b/a b/b c".to_owned(), 0, 0));
        assert_eq!(told(folder.path(), 8), ("a b/a".to_owned(), 2, 0));
        assert_eq!(told(folder.path(), 7), ("a b/b c".to_owned(), 1, 0));
        assert_eq!(told(&at("a"), 2), ("a".to_owned(), 0, 0));
        assert_eq!(told(&at("none"), 2), (String::new(), 0, 2));
    }
}
