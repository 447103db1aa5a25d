//! The server's log: a line is written, whole and at once, before its answer is sent.

use std::{
    io::{self, Write},
    sync::{Mutex, PoisonError},
};

use oracle::history::{Answer, Served};

use super::{LOG_LIMIT, ServeError};
use crate::{clock, wire};

/// Where [`Served`] lines go.
pub(super) struct Log {
    state: Mutex<State>,
}

struct State {
    output: Box<dyn Write + Send>,
    written: u64,
    failure: Option<ServeError>,
}

impl Log {
    pub(super) fn new(output: impl Write + Send + 'static) -> Self {
        Self {
            state: Mutex::new(State {
                output: Box::new(output),
                written: 0,
                failure: None,
            }),
        }
    }

    /// Writes a line; false if it could not, now or earlier.
    ///
    /// It blocks while the reader of a pipe is slow: answers wait for their lines.
    pub(super) fn served(&self, answer: &Answer) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failure.is_some() {
            return false;
        }
        let line = wire::line(&Served {
            time_us: clock::now_us(),
            answer: answer.clone(),
        });
        state.written = state.written.saturating_add(line.len() as u64);
        if state.written > LOG_LIMIT {
            state.failure = Some(ServeError::LogFull);
            return false;
        }
        let result = write_line(&mut state.output, &line);
        state.failure = result.err().map(ServeError::Log);
        state.failure.is_none()
    }

    /// The first error of a write, if there was one.
    pub(super) fn end(&self) -> Result<(), ServeError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failure.take().map_or(Ok(()), Err)
    }
}

fn write_line(output: &mut dyn Write, line: &[u8]) -> io::Result<()> {
    output.write_all(line)?;
    output.flush()
}

impl std::fmt::Debug for Log {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Log").finish_non_exhaustive()
    }
}
