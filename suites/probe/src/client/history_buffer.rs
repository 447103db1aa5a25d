//! The history of a client, kept for readers: the newest part in memory, all of it in a file up to a limit.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

/// Bytes of history that are kept in memory; older lines are dropped, and counted.
pub const IN_MEMORY: usize = 64 << 20;
/// Bytes of history that are written to the file; further lines are not, which is logged once.
pub const IN_FILE: u64 = 512 << 20;

/// A growing history. Writing to it appends lines.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    state: Arc<Mutex<State>>,
    changes: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    /// Lines; the first has the offset `dropped`.
    lines: VecDeque<Arc<[u8]>>,
    bytes: usize,
    most: usize,
    dropped: u64,
    begun: Vec<u8>,
    file: Option<ToFile>,
    ended: bool,
}

#[derive(Debug)]
struct ToFile {
    path: PathBuf,
    file: File,
    left: u64,
    /// It was full, or could not be written.
    is_over: bool,
}

/// A part of a history.
#[derive(Debug)]
pub(super) struct Part {
    /// Offset of the first line; later than the requested one if lines were dropped.
    pub(super) first: u64,
    pub(super) lines: Vec<Arc<[u8]>>,
    /// No line follows.
    pub(super) ended: bool,
}

impl Kept {
    /// An empty history that keeps its newest `most` bytes in memory, and as much as [`IN_FILE`] in a new file.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(super) fn new(most: usize, file: Option<&Path>) -> io::Result<Self> {
        let open = |path: &Path| -> io::Result<ToFile> {
            Ok(ToFile {
                path: path.to_owned(),
                file: File::create(path)?,
                left: IN_FILE,
                is_over: false,
            })
        };
        let state = State {
            lines: VecDeque::new(),
            bytes: 0,
            most,
            dropped: 0,
            begun: Vec::new(),
            file: file.map(open).transpose()?,
            ended: false,
        };
        Ok(Self {
            state: Arc::new(Mutex::new(state)),
            changes: watch::Sender::new(()),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No line follows.
    pub(super) fn end(&self) {
        self.state().ended = true;
        self.changes.send_replace(());
    }

    /// At most `most` lines from an offset on, as soon as there is one, or the end.
    pub(super) async fn part(&self, offset: u64, most: usize) -> Part {
        let mut changes = self.changes.subscribe();
        loop {
            let part = self.state().part(offset, most);
            if !part.lines.is_empty() || part.ended {
                return part;
            }
            if changes.changed().await.is_err() {
                return part;
            }
        }
    }

    /// Offsets of the oldest line in memory, and of the next line.
    pub(super) fn bounds(&self) -> (u64, u64) {
        let state = self.state();
        (state.dropped, state.dropped + state.lines.len() as u64)
    }
}

impl State {
    fn part(&self, offset: u64, most: usize) -> Part {
        // A request for a later offset is answered when that line exists.
        let first = offset.max(self.dropped);
        let skip = usize::try_from(first - self.dropped).unwrap_or(usize::MAX);
        let lines: Vec<_> = self.lines.iter().skip(skip).take(most).cloned().collect();
        let is_last = skip.saturating_add(lines.len()) >= self.lines.len();
        Part {
            first,
            lines,
            ended: self.ended && is_last,
        }
    }

    fn push(&mut self, line: &[u8]) {
        if let Some(file) = &mut self.file {
            file.write(line);
        }
        self.bytes += line.len();
        self.lines.push_back(line.into());
        while self.bytes > self.most
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= oldest.len();
            self.dropped += 1;
        }
    }
}

impl ToFile {
    /// A failing file ends nothing: the error is logged once, and the lines are in memory.
    fn write(&mut self, line: &[u8]) {
        if self.is_over {
            return;
        }
        let length = line.len() as u64;
        let result = if length > self.left {
            let why = format!("expected at most {IN_FILE} bytes");
            Err(io::Error::new(io::ErrorKind::StorageFull, why))
        } else {
            self.file.write_all(line)
        };
        match result {
            Ok(()) => self.left -= length,
            Err(error) => {
                let path = self.path.display();
                eprintln!("failed to write the history to {path}: {error}; what follows is in memory only");
                self.is_over = true;
            }
        }
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.state();
        state.begun.extend_from_slice(bytes);
        while let Some(end) = state.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = state.begun.drain(..=end).collect();
            state.push(&line);
        }
        drop(state);
        self.changes.send_replace(());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(most: usize) -> Kept {
        Kept::new(most, None).expect("no file, no error")
    }

    fn text(part: &Part) -> String {
        part.lines
            .iter()
            .map(|line| String::from_utf8_lossy(line))
            .collect()
    }

    #[tokio::test]
    async fn lines_are_read_from_any_offset() {
        let mut kept = kept(1000);
        kept.write_all(b"a\nb\nc").expect("written");
        assert_eq!(text(&kept.part(0, 10).await), "a\nb\n", "whole lines only");
        assert_eq!(text(&kept.part(1, 10).await), "b\n");
        assert_eq!(text(&kept.part(0, 1).await), "a\n");
        assert_eq!(kept.bounds(), (0, 2));
        let waiting = kept.clone();
        let next = tokio::spawn(async move { text(&waiting.part(2, 10).await) });
        kept.write_all(b"\n").expect("written");
        assert_eq!(next.await.expect("no panic"), "c\n", "as it comes");
        kept.end();
        let last = kept.part(3, 10).await;
        assert!(last.ended && last.lines.is_empty());
    }

    #[tokio::test]
    async fn a_file_that_can_not_be_written_ends_nothing() {
        // Every write to it fails with ENOSPC (full(4)).
        let mut kept = Kept::new(1000, Some(Path::new("/dev/full"))).expect("opened");
        kept.write_all(b"a\nb\n").expect("in memory");
        assert_eq!(text(&kept.part(0, 10).await), "a\nb\n");
    }

    #[tokio::test]
    async fn the_oldest_are_dropped_and_counted() {
        let mut kept = kept(6);
        kept.write_all(b"aa\nbb\ncc\n").expect("written");
        let part = kept.part(0, 10).await;
        assert_eq!((part.first, text(&part).as_str()), (1, "bb\ncc\n"));
        assert_eq!(kept.bounds(), (1, 3));
    }
}
