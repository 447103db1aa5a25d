//! Statistics: ratios of one round's figures, and what lies in their middle.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{BARE, By, Change, Sample, Start, Way, Work};

/// The middle of some numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// A quarter is below.
    pub lower: f64,
    /// A half is below.
    pub median: f64,
    /// Three quarters are below.
    pub upper: f64,
}

impl Quartiles {
    /// Of these numbers, each of which is one of them; `None` of none.
    #[must_use]
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = numbers.into_iter().filter(|number| number.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |quarter: usize| sorted.get((sorted.len().checked_sub(1)?) * quarter / 4).copied();
        Some(Self {
            lower: at(1)?,
            median: at(2)?,
            upper: at(3)?,
        })
    }
}

/// One implementation's figures of a way and an exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The target's name.
    pub target: String,
    /// Direct connections or those by a Service.
    pub by: By,
    /// Exchanges in a second, as a share of the bare lab's direct ones in the same round.
    pub share: Quartiles,
    /// Median time of an exchange in microseconds: the median of the rounds.
    pub median_us: f64,
    /// The 99th percentile, likewise.
    pub p99_us: f64,
    /// Processor time of the whole machine for an exchange in microseconds, likewise.
    pub busy_us: f64,
    /// Exchanges of all rounds that were not answered, by the error's name.
    pub failed: BTreeMap<String, u64>,
}

/// All figures of a way and an exchange among so many Services.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Services beside the measured ones.
    pub services: usize,
    /// Way to the server.
    pub way: Way,
    /// The exchange.
    pub work: Work,
    /// Direct exchanges in a second in the bare lab.
    pub bare: Quartiles,
    /// Median time of one in microseconds: the median of the rounds.
    pub bare_us: f64,
    /// Those of the targets, direct ones before those by a Service, in the order of the targets.
    pub figures: Vec<Figure>,
}

/// Delays of changes of one target among so many Services, beside so many other changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Delays {
    /// The target's name.
    pub target: String,
    /// Services beside the measured ones.
    pub services: usize,
    /// Changes of other slices in a second, as planned.
    pub others: u32,
    /// As made: the median of the rounds.
    pub others_made: f64,
    /// From the write to the first connection that the new endpoint answered, in milliseconds.
    pub took_ms: Quartiles,
    /// The longest.
    pub longest_ms: f64,
    /// Connections before that one, which got no answer: the sum over the rounds.
    pub failed: u64,
}

/// Cold starts of one target among so many Services.
#[derive(Clone, Debug, PartialEq)]
pub struct Starts {
    /// The target's name.
    pub target: String,
    /// Services beside the measured ones.
    pub services: usize,
    /// From the start to the last of the Services that were asked, in seconds.
    pub took_s: Quartiles,
    /// The longest.
    pub longest_s: f64,
}

/// Exchanges in a second.
fn rate(sample: &Sample) -> f64 {
    sample.measured.exchanges as f64 / sample.measured.seconds
}

/// The rows of samples: by number of Services, way, and exchange.
#[must_use]
pub fn rows(samples: &[Sample]) -> Vec<Row> {
    let kinds: BTreeSet<(usize, Way, Work)> = samples
        .iter()
        .map(|sample| (sample.services, sample.way, sample.work))
        .collect();
    let row = |(services, way, work): (usize, Way, Work)| {
        let of_row: Vec<&Sample> = samples
            .iter()
            .filter(|sample| (sample.services, sample.way, sample.work) == (services, way, work))
            .collect();
        let bare: BTreeMap<usize, f64> = of_row
            .iter()
            .filter(|sample| sample.target == BARE)
            .map(|sample| (sample.round, rate(sample)))
            .collect();
        let middle = |of: &[&Sample], number: fn(&Sample) -> f64| {
            Quartiles::of(of.iter().map(|sample| number(sample))).map(|found| found.median)
        };
        let bare_samples: Vec<&Sample> = of_row
            .iter()
            .filter(|sample| sample.target == BARE)
            .copied()
            .collect();
        let mut targets: Vec<&str> = Vec::new();
        for sample in of_row.iter().filter(|sample| sample.target != BARE) {
            if !targets.contains(&sample.target.as_str()) {
                targets.push(&sample.target);
            }
        }
        let figure = |by: By, target: &str| {
            let own: Vec<&Sample> = of_row
                .iter()
                .filter(|sample| sample.target == target && sample.by == by)
                .copied()
                .collect();
            let shares = own
                .iter()
                .filter_map(|sample| Some(rate(sample) / bare.get(&sample.round)?));
            let mut failed = BTreeMap::new();
            for (error, count) in own.iter().flat_map(|sample| &sample.measured.failed) {
                *failed.entry(error.clone()).or_default() += count;
            }
            Some(Figure {
                target: target.to_owned(),
                by,
                share: Quartiles::of(shares)?,
                median_us: middle(&own, |sample| sample.measured.median_us)?,
                p99_us: middle(&own, |sample| sample.measured.p99_us)?,
                busy_us: middle(&own, |sample| {
                    sample.measured.busy_seconds * 1e6 / sample.measured.exchanges as f64
                })
                .unwrap_or_default(),
                failed,
            })
        };
        let figures = [By::Direct, By::Service]
            .into_iter()
            .flat_map(|by| targets.iter().filter_map(move |target| figure(by, target)))
            .collect();
        Some(Row {
            services,
            way,
            work,
            bare: Quartiles::of(bare.values().copied())?,
            bare_us: middle(&bare_samples, |sample| sample.measured.median_us)?,
            figures,
        })
    };
    kinds.into_iter().filter_map(row).collect()
}

/// The delays of changes, by number of Services, other changes, and target.
#[must_use]
pub fn delays(changes: &[Change]) -> Vec<Delays> {
    let kinds: BTreeSet<(usize, u32, &str)> = changes
        .iter()
        .map(|change| (change.services, change.others, change.target.as_str()))
        .collect();
    let of = |(services, others, target): (usize, u32, &str)| {
        let own: Vec<&Change> = changes
            .iter()
            .filter(|change| {
                (change.services, change.others, change.target.as_str()) == (services, others, target)
            })
            .collect();
        let milliseconds = |took: Duration| took.as_secs_f64() * 1e3;
        let longest = own.iter().map(|change| change.took).max()?;
        Some(Delays {
            target: target.to_owned(),
            services,
            others,
            others_made: Quartiles::of(own.iter().map(|change| change.others_made))?.median,
            took_ms: Quartiles::of(own.iter().map(|change| milliseconds(change.took)))?,
            longest_ms: milliseconds(longest),
            failed: own.iter().map(|change| change.failed).sum(),
        })
    };
    kinds.into_iter().filter_map(of).collect()
}

/// The cold starts, by number of Services and target.
#[must_use]
pub fn starts(starts: &[Start]) -> Vec<Starts> {
    let kinds: BTreeSet<(usize, &str)> = starts
        .iter()
        .map(|start| (start.services, start.target.as_str()))
        .collect();
    let of = |(services, target): (usize, &str)| {
        let own = starts
            .iter()
            .filter(|start| (start.services, start.target.as_str()) == (services, target));
        let took: Vec<f64> = own.map(|start| start.took.as_secs_f64()).collect();
        Some(Starts {
            target: target.to_owned(),
            services,
            longest_s: took.iter().copied().reduce(f64::max)?,
            took_s: Quartiles::of(took)?,
        })
    };
    kinds.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use probe::load::Measured;

    use super::*;

    fn sample(target: &str, by: By, round: usize, exchanges: u64) -> Sample {
        Sample {
            target: target.to_owned(),
            services: 10,
            round,
            way: Way::Pod,
            by,
            work: Work::Connect,
            measured: Measured {
                exchanges,
                seconds: 2.0,
                busy_seconds: 1.0,
                median_us: 100.0,
                p99_us: 300.0,
                ..Measured::default()
            },
        }
    }

    #[test]
    fn quartiles_are_numbers_of_the_sample() {
        let found = Quartiles::of([5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((found.lower, found.median, found.upper), (2.0, 3.0, 4.0));
        assert_eq!(
            Quartiles::of([f64::INFINITY, f64::NAN]),
            None,
            "a rate of nothing is no number"
        );
    }

    #[test]
    fn a_share_is_of_the_bare_lab_in_the_same_round() {
        // The machine was twice as fast in the second round.
        let samples = [
            sample(BARE, By::Direct, 0, 1000),
            sample("a", By::Direct, 0, 900),
            sample("a", By::Service, 0, 800),
            sample(BARE, By::Direct, 1, 2000),
            sample("a", By::Service, 1, 1600),
            sample("a", By::Direct, 1, 1800),
        ];
        let rows = rows(&samples);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].bare.lower, 500.0, "in a second");
        let shares: Vec<_> = rows[0]
            .figures
            .iter()
            .map(|figure| (figure.by, figure.share.lower, figure.share.upper))
            .collect();
        assert_eq!(shares, [(By::Direct, 0.9, 0.9), (By::Service, 0.8, 0.8)]);
        assert_eq!(rows[0].figures[1].busy_us, 1e6 / 1600.0, "the lower one of two");
    }

    #[test]
    fn failures_of_all_rounds_are_counted() {
        let mut samples = [
            sample(BARE, By::Direct, 0, 1000),
            sample("a", By::Service, 0, 0),
            sample(BARE, By::Direct, 1, 1000),
            sample("a", By::Service, 1, 500),
        ];
        for one in [1, 3] {
            samples[one].measured.failed.insert("ECONNREFUSED".to_owned(), 7);
        }
        let rows = rows(&samples);
        assert_eq!(rows[0].figures[0].failed["ECONNREFUSED"], 14);
        assert_eq!(rows[0].figures[0].share.lower, 0.0, "nothing was answered in one");
    }

    #[test]
    fn delays_are_those_of_one_target_among_so_many_services() {
        let change = |target: &str, milliseconds, failed| Change {
            target: target.to_owned(),
            services: 10,
            others: 20,
            others_made: 19.5,
            round: 0,
            took: Duration::from_millis(milliseconds),
            failed,
        };
        let found = delays(&[change("a", 4, 0), change("b", 900, 1), change("a", 6, 2)]);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].longest_ms, found[0].failed), (6.0, 2));
        assert_eq!(found[1].took_ms.median, 900.0);
    }
}
