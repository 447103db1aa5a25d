//! Numbers measured, and their statistics.

/// Nanoseconds, measured many times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sample(Vec<u64>);

impl Sample {
    /// One more.
    pub(crate) fn add(&mut self, nanoseconds: u64) {
        self.0.push(nanoseconds);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The one that this many of a hundred are not above; 0 of none.
    pub(crate) fn percentile(&self, of_hundred: usize) -> u64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get(last * of_hundred / 100).copied().unwrap_or(0)
    }

    /// The one in the middle.
    pub(crate) fn median(&self) -> u64 {
        self.percentile(50)
    }

    /// All of them without what measuring them takes.
    pub(crate) fn without(mut self, nanoseconds: u64) -> Self {
        for one in &mut self.0 {
            *one = one.saturating_sub(nanoseconds);
        }
        self
    }

    /// How many times another's median this one's is; `None` if that is 0.
    pub(crate) fn ratio(&self, other: &Self) -> Option<f64> {
        let (this, other) = (self.median(), other.median());
        (other != 0).then(|| this as f64 / other as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(numbers: impl IntoIterator<Item = u64>) -> Sample {
        let mut sample = Sample::default();
        numbers.into_iter().for_each(|number| sample.add(number));
        sample
    }

    #[test]
    fn percentiles_are_numbers_that_were_measured() {
        let sample = sample((0..=100).rev());
        for of_hundred in [0, 10, 50, 90, 100] {
            assert_eq!(sample.percentile(of_hundred), of_hundred as u64);
        }
    }

    #[test]
    fn one_that_was_late_does_not_move_the_median() {
        assert_eq!(sample([3, 1, 1_000_000, 2, 2]).median(), 2);
    }

    #[test]
    fn nothing_measured_is_zero_and_no_ratio() {
        assert_eq!(Sample::default().median(), 0);
        assert_eq!(sample([1]).ratio(&Sample::default()), None);
        assert_eq!(sample([3]).ratio(&sample([2])), Some(1.5));
    }

    #[test]
    fn what_measuring_takes_goes_off_each_and_never_below_zero() {
        assert_eq!(sample([10, 20, 30]).without(15), sample([0, 5, 15]));
    }
}
