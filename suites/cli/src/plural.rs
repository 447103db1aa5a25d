//! Numbers of things as readable text.

/// `1 case`, `2 cases`.
pub(crate) fn counted(count: usize, one: &str, more: &str) -> String {
    let things = if count == 1 { one } else { more };
    format!("{count} {things}")
}

/// Seconds as readable text.
pub(crate) fn seconds(duration: std::time::Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_not_several() {
        let said = [0, 1, 2].map(|count| counted(count, "axis", "axes"));
        assert_eq!(said, ["0 axes", "1 axis", "2 axes"]);
    }
}
