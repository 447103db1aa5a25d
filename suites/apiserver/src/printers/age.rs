//! Durations for people (`k8s.io/apimachinery/pkg/util/duration`).

use jiff::Timestamp;
use serde_json::Value;

/// How long ago a timestamp was: `5m3s`.
pub(super) fn since(timestamp: &Value) -> String {
    match timestamp.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(then) => human(Timestamp::now().as_second() - then.as_second()),
        None => "<unknown>".to_owned(),
    }
}

/// Two units at most, and fewer the longer it is.
fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |first: i64, one: &str, rest: i64, other: &str| {
        if rest == 0 {
            format!("{first}{one}")
        } else {
            format!("{first}{one}{rest}{other}")
        }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 2 * 365 => format!("{days}d"),
        _ if days < 8 * 365 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_worded_as_kubectl_words_them() {
        let (minute, hour, day) = (60, 3600, 86400);
        let rows = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (2 * minute, "2m"),
            (9 * minute + 59, "9m59s"),
            (10 * minute + 59, "10m"),
            (3 * hour, "3h"),
            (7 * hour + 30 * minute, "7h30m"),
            (8 * hour + 30 * minute, "8h"),
            (47 * hour, "47h"),
            (2 * day, "2d"),
            (7 * day + 3 * hour, "7d3h"),
            (8 * day + 3 * hour, "8d"),
            (729 * day, "729d"),
            (3 * 365 * day + day, "3y1d"),
            (9 * 365 * day, "9y"),
        ];
        for (seconds, expected) in rows {
            assert_eq!(human(seconds), expected, "{seconds} s");
        }
    }
}
