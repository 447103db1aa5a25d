//! Numbers of things as readable text.

use std::time::Duration;

/// `1 case`, `2 cases`.
pub(crate) fn counted(count: usize, one: &str, more: &str) -> String {
    let things = if count == 1 { one } else { more };
    format!("{count} {things}")
}

/// Tenths of a second show less than a reader of minutes needs.
const IN_SECONDS: Duration = Duration::from_secs(100);

/// A duration as readable text: `51.2 s`, `4 min 12 s`.
pub(crate) fn seconds(duration: Duration) -> String {
    if duration < IN_SECONDS {
        return format!("{:.1} s", duration.as_secs_f64());
    }
    let whole = duration.as_secs();
    match (whole / 60, whole % 60) {
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_durations_are_in_minutes() {
        let of = |tenths: u64| seconds(Duration::from_millis(tenths * 100));
        assert_eq!([of(0), of(512), of(999)], ["0.0 s", "51.2 s", "99.9 s"]);
        assert_eq!(
            [of(1000), of(1200), of(2525)],
            ["1 min 40 s", "2 min", "4 min 12 s"]
        );
    }

    #[test]
    fn one_thing_is_not_several() {
        let said = [0, 1, 2].map(|count| counted(count, "axis", "axes"));
        assert_eq!(said, ["0 axes", "1 axis", "2 axes"]);
    }
}
