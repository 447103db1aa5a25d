//! One history: drawn from the seed and its number, played, and made shorter if it breaks the law.

use std::{
    cell::RefCell,
    panic::{self, AssertUnwindSafe, Location},
};

use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use reference_agent::plan::Selection;

use crate::history::{Step, hold, steps};

/// Most steps of a history.
const STEPS: usize = 40;
/// One history in so many has Maglev's tables, each up to a thousand slots.
const TABLES: u64 = 32;
/// Most histories that are tried to make a broken one shorter.
const SHORTER: usize = 5_000;

thread_local! {
    /// What the last panic of this thread said.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps what panics say, instead of printing it: making a history shorter makes thousands.
pub(super) fn keep_panics() {
    panic::set_hook(Box::new(|info| {
        let at = info.location().map(Location::to_string).unwrap_or_default();
        let text = info.payload_as_str().unwrap_or("a panic without a sentence");
        SAID.with_borrow_mut(|said| *said = format!("{text}\n(at {at})"));
    }));
}

/// A history that breaks the law.
pub(super) struct Broken {
    /// Its number.
    pub(super) number: u64,
    /// What is left of it.
    pub(super) steps: Vec<Step>,
    /// What the check said of that.
    pub(super) why: String,
    /// How many histories were tried to make it shorter.
    pub(super) tried: usize,
}

/// Draws and plays histories.
pub(super) struct Player {
    seed: u64,
}

impl Player {
    /// All from one seed.
    pub(super) const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Plays one; `None`: it keeps the law.
    pub(super) fn play(&self, number: u64) -> Option<Broken> {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        let config = Config {
            failure_persistence: None,
            ..Config::default()
        };
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(config, random);
        let selection = match number % TABLES {
            0 => Selection::Maglev,
            _ => Selection::Random,
        };
        let tree = steps(STEPS).new_tree(&mut runner);
        let mut tree = tree.expect("a history that no filter rejects");
        let mut why = broken(selection, tree.current())?;
        let mut shortest = tree.current();
        let mut tried = 0;
        let mut more = tree.simplify();
        while more && tried < SHORTER {
            tried += 1;
            more = match broken(selection, tree.current()) {
                Some(said) => {
                    (shortest, why) = (tree.current(), said);
                    tree.simplify()
                }
                None => tree.complicate(),
            };
        }
        Some(Broken {
            number,
            steps: shortest,
            why,
            tried,
        })
    }
}

/// What the check says of a history that breaks the law.
fn broken(selection: Selection, steps: Vec<Step>) -> Option<String> {
    panic::catch_unwind(AssertUnwindSafe(|| hold(selection, steps))).err()?;
    Some(SAID.with_borrow(Clone::clone))
}
