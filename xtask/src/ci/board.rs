//! Shared state of lanes: ended parts, and what set-ups have found.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::PathBuf,
    process::Command,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How a part ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// All of it passed; `with_luck` if something passed only at a second try.
    Passed { with_luck: bool },
    /// Something of it failed, or could not run.
    Failed(String),
    /// It need not run, with the reason.
    LeftOut(String),
    /// This machine lacks something that it needs.
    Lacking(String),
    /// A part before it failed, or all were stopped.
    NotRun(String),
}

impl Outcome {
    pub(crate) const fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::NotRun(_))
    }
}

/// A part that has ended.
#[derive(Clone)]
pub(crate) struct Finished {
    pub(crate) outcome: Outcome,
    pub(crate) wall: Duration,
    pub(crate) processor: Duration,
}

impl Finished {
    /// A part that did not begin.
    pub(crate) const fn without_a_run(outcome: Outcome) -> Self {
        let (wall, processor) = (Duration::ZERO, Duration::ZERO);
        Self {
            outcome,
            wall,
            processor,
        }
    }
}

/// Programs and variables that a set-up provides.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    things: BTreeSet<String>,
    /// Folders of programs, first in PATH.
    path: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Found {
    /// Parses the output of `.ci/setup`.
    ///
    /// # Errors
    /// The first invalid line.
    pub(crate) fn parse(answers: &str) -> Result<Self, String> {
        let mut found = Self::default();
        for line in answers.lines() {
            match *line.splitn(3, ' ').collect::<Vec<_>>() {
                ["has", thing] => drop(found.things.insert(thing.to_owned())),
                ["path", folder] => found.path.push(folder.to_owned()),
                ["set", name, value] => found.variables.push((name.to_owned(), value.to_owned())),
                _ => return Err(line.to_owned()),
            }
        }
        Ok(found)
    }

    pub(crate) fn has(&self, thing: &str) -> bool {
        self.things.contains(thing)
    }

    /// The value of a variable, if the set-up has it.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        let mut all = self.variables.iter().filter(|(known, _)| known == name);
        all.next().map(|(_, value)| value.as_str())
    }

    /// Adds the findings of another set-up.
    pub(crate) fn join(&mut self, other: Self) {
        self.things.extend(other.things);
        self.path.extend(other.path);
        self.variables.extend(other.variables);
    }

    /// Adds the findings to the environment of a command.
    pub(crate) fn give(&self, command: &mut Command) {
        if !self.path.is_empty() {
            let own = env::var_os("PATH").unwrap_or_default();
            let folders = self.path.iter().map(PathBuf::from);
            let all = folders.chain(env::split_paths(&own));
            // PATH can't contain a folder with a colon in its name.
            if let Ok(path) = env::join_paths(all) {
                command.env("PATH", path);
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
    }
}

/// One board for all lanes.
#[derive(Default)]
pub(crate) struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    finished: BTreeMap<&'static str, Finished>,
    reached: BTreeSet<&'static str>,
    found: BTreeMap<&'static str, Found>,
    notes: Vec<String>,
}

impl Board {
    /// Records that a part has ended.
    pub(crate) fn finish(&self, name: &'static str, finished: Finished) {
        self.state().finished.insert(name, finished);
        self.changed.notify_all();
    }

    /// Records a milestone that other parts wait for, without the end of a part.
    pub(crate) fn reach(&self, name: &'static str) {
        self.state().reached.insert(name);
        self.changed.notify_all();
    }

    /// Waits until a part has ended or a milestone was reached; returns the outcome of a part.
    pub(crate) fn wait_for(&self, name: &str) -> Option<Outcome> {
        let mut state = self.state();
        loop {
            if let Some(finished) = state.finished.get(name) {
                return Some(finished.outcome.clone());
            }
            if state.reached.contains(name) {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn finished(&self, name: &str) -> Option<Finished> {
        self.state().finished.get(name).cloned()
    }

    pub(crate) fn find(&self, setup: &'static str, found: Found) {
        self.state().found.insert(setup, found);
    }

    /// Findings of a set-up; empty, if it did not run.
    pub(crate) fn found(&self, setup: &str) -> Found {
        self.state().found.get(setup).cloned().unwrap_or_default()
    }

    /// Adds a note for the end of the output.
    pub(crate) fn note(&self, note: String) {
        self.state().notes.push(note);
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        self.state().notes.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_set_up_found_is_given_to_commands() {
        let found = Found::parse("has a\npath /x/y\nset NAME a value\nhas b\n").unwrap();
        assert!(found.has("a") && found.has("b") && !found.has("c"));
        assert_eq!(found.variable("NAME"), Some("a value"));
        let mut command = Command::new("sh");
        found.give(command.args(["-c", "echo $NAME; echo $PATH"]));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with("a value\n/x/y:"), "{text}");
        assert_eq!(Found::parse("has a\nwhatever"), Err("whatever".to_owned()));
    }
}
