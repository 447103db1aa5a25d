//! What a case records beside its verdict: delays, errnos, choices of the implementation, and what recoveries needed.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::report::Needed;

/// All of one case.
#[derive(Debug, Default)]
pub(crate) struct Record {
    values: Mutex<BTreeMap<String, String>>,
    delays: Mutex<BTreeMap<String, Duration>>,
    recoveries: Mutex<Vec<Needed>>,
}

impl Record {
    /// A value; the last one of a name is reported.
    pub(crate) fn value(&self, name: &str, value: String) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.insert(name.to_owned(), value);
    }

    /// How long a change took; of several of one name the longest is reported.
    pub(crate) fn delay(&self, name: &str, took: Duration) {
        let mut delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = delays.entry(name.to_owned()).or_default();
        *longest = took.max(*longest);
    }

    /// What a recovery needed.
    pub(crate) fn recovery(&self, needed: Needed) {
        let mut recoveries = self.recoveries.lock().unwrap_or_else(PoisonError::into_inner);
        recoveries.push(needed);
    }

    /// All values and delays, by name.
    pub(crate) fn all(&self) -> BTreeMap<String, String> {
        let mut all = self.values.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (name, took) in &*self.delays.lock().unwrap_or_else(PoisonError::into_inner) {
            all.insert(
                format!("delay at most: {name}"),
                format!("{} ms", took.as_millis()),
            );
        }
        all
    }

    /// What all recoveries needed, in their order.
    pub(crate) fn recoveries(&self) -> Vec<Needed> {
        self.recoveries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_delays_of_one_name_the_longest_is_reported() {
        let record = Record::default();
        for milliseconds in [20, 30, 10] {
            record.delay("served", Duration::from_millis(milliseconds));
        }
        record.value("errno", "ECONNREFUSED".to_owned());
        let expected = [("delay at most: served", "30 ms"), ("errno", "ECONNREFUSED")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(record.all(), expected.into());
    }
}
