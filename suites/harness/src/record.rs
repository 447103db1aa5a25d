//! What a case records beside its verdict: delays, errnos, choices of the implementation, and what recoveries needed.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Formatter},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::report::Needed;

/// How long a change took, and how long it might.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delay {
    /// From the write, or the start of an agent, to what had to come of it.
    pub(crate) took: Duration,
    /// The limit of the verdict, the control or the witness.
    pub(crate) limit: Duration,
}

impl Delay {
    /// The share of its limit that it took; 1 of none.
    fn share(self) -> f64 {
        if self.limit.is_zero() {
            return 1.0;
        }
        self.took.div_duration_f64(self.limit)
    }
}

impl Display for Delay {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} ms", self.took.as_millis(), self.limit.as_millis())
    }
}

/// All of one case.
#[derive(Debug, Default)]
pub(crate) struct Record {
    values: Mutex<BTreeMap<String, String>>,
    delays: Mutex<BTreeMap<String, Delay>>,
    recoveries: Mutex<Vec<Needed>>,
}

impl Record {
    /// A value; the last one of a name is reported.
    pub(crate) fn value(&self, name: &str, value: String) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.insert(name.to_owned(), value);
    }

    /// How long a change took; of several of one name the one that came nearest to its limit is reported.
    pub(crate) fn delay(&self, name: &str, delay: Delay) {
        let mut delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        let nearest = delays.entry(name.to_owned()).or_insert(delay);
        if delay.share() > nearest.share() {
            *nearest = delay;
        }
    }

    /// What a recovery needed.
    pub(crate) fn recovery(&self, needed: Needed) {
        let mut recoveries = self.recoveries.lock().unwrap_or_else(PoisonError::into_inner);
        recoveries.push(needed);
    }

    /// All values and delays, by name.
    pub(crate) fn all(&self) -> BTreeMap<String, String> {
        let mut all = self.values.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (name, delay) in &*self.delays.lock().unwrap_or_else(PoisonError::into_inner) {
            all.insert(format!("delay at most: {name}"), delay.to_string());
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
    fn of_several_delays_of_one_name_the_nearest_to_its_limit_is_reported() {
        let record = Record::default();
        for (took, limit) in [(20, 100), (30, 90), (31, 1000)] {
            let (took, limit) = (Duration::from_millis(took), Duration::from_millis(limit));
            record.delay("served", Delay { took, limit });
        }
        record.value("errno", "ECONNREFUSED".to_owned());
        let expected = [
            ("delay at most: served", "30 of 90 ms"),
            ("errno", "ECONNREFUSED"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(record.all(), expected.into());
    }
}
