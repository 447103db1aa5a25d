//! Every measurement, as comma-separated values. No field has a comma or a quote: targets' names are file names, errors symbols.

use std::fmt::Write as _;

use bench::{Change, Sample, Start};

/// A line for each measurement.
pub(super) fn samples(samples: &[Sample]) -> String {
    let mut text = "services,round,target,way,by,exchange,exchanges,bytes,seconds,busy_seconds,median_us,p99_us,longest_us,failed\n"
        .to_owned();
    for sample in samples {
        let measured = &sample.measured;
        let failed: u64 = measured.failed.values().sum();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{:.6},{:.2},{:.1},{:.1},{:.1},{failed}",
            sample.services,
            sample.round,
            sample.target,
            sample.way.name(),
            sample.by.name(),
            sample.work.name(),
            measured.exchanges,
            measured.bytes,
            measured.seconds,
            measured.busy_seconds,
            measured.median_us,
            measured.p99_us,
            measured.longest_us,
        );
    }
    text
}

/// A line for each delay.
pub(super) fn changes(changes: &[Change]) -> String {
    let mut text = "services,round,target,others_a_second,others_made_a_second,took_ms,failed\n".to_owned();
    for change in changes {
        let _ = writeln!(
            text,
            "{},{},{},{},{:.1},{:.3},{}",
            change.services,
            change.round,
            change.target,
            change.others,
            change.others_made,
            change.took.as_secs_f64() * 1e3,
            change.failed
        );
    }
    text
}

/// A line for each cold start.
pub(super) fn starts(starts: &[Start]) -> String {
    let mut text = "services,round,target,took_s\n".to_owned();
    for start in starts {
        let (services, round, target) = (start.services, start.round, &start.target);
        let _ = writeln!(
            text,
            "{services},{round},{target},{:.3}",
            start.took.as_secs_f64()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bench::{By, Measured, Way, Work};

    use super::*;

    #[test]
    fn each_line_has_a_value_for_each_column() {
        let sample = Sample {
            target: "reference".to_owned(),
            services: 10,
            round: 2,
            way: Way::Far,
            by: By::Service,
            work: Work::UdpNew,
            measured: Measured::default(),
        };
        let change = Change {
            target: "reference".to_owned(),
            services: 10,
            others: 20,
            others_made: 19.95,
            round: 2,
            took: Duration::from_micros(5125),
            failed: 0,
        };
        for text in [samples(&[sample]), changes(std::slice::from_ref(&change))] {
            let columns: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
            assert_eq!(columns[0], columns[1], "{text}");
        }
        assert!(changes(&[change]).ends_with("10,2,reference,20,19.9,5.125,0\n"));
    }
}
