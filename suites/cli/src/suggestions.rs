//! Names similar to an unknown one, for errors.

/// Limit of shown names.
const MOST: usize = 3;

/// Least similarity of shown names, from 0 to 1: two of five letters may be wrong, missing or swapped.
const LEAST: f64 = 0.6;

/// How much less similar than the best match the other names may be: one wrong letter of seven.
const RANGE: f64 = 0.15;

/// Says that there is no such thing, which names may be meant, and the command that lists all.
pub(crate) fn unknown<'a>(
    what: &str,
    text: &str,
    names: impl IntoIterator<Item = &'a str>,
    command: &str,
) -> String {
    let meant = meant(text, names);
    let end = if meant.is_empty() { ":" } else { "" };
    format!("there is no {what} {text}{meant}{end} `{command}` shows all")
}

/// `; did you mean A or B?`: the names of which all or a part is similar to `text`. Empty, if none is.
pub(crate) fn meant<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let text = text.trim_matches(['^', '$']).to_lowercase();
    let mut found: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| (similarity(&text, name), name))
        .filter(|(similarity, _)| *similarity >= LEAST)
        .collect();
    let best = found
        .iter()
        .map(|(similarity, _)| *similarity)
        .fold(0.0, f64::max);
    found.retain(|(similarity, _)| *similarity >= best - RANGE);
    // The sort is stable: names of equal similarity keep their order.
    found.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    found.truncate(MOST);
    let names: Vec<&str> = found.into_iter().map(|(_, name)| name).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [first @ .., last] => format!("; did you mean {} or {last}?", first.join(", ")),
    }
}

/// Similarity to the best part of `name` with the same number of words: a filter matches parts, too.
fn similarity(text: &str, name: &str) -> f64 {
    let words: Vec<&str> = name.split('-').collect();
    let count = text.split('-').count().min(words.len());
    let parts = words.windows(count).map(|part| part.join("-"));
    let similarities = parts.map(|part| strsim::normalized_damerau_levenshtein(text, &part));
    similarities.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 5] = [
        "release-map",
        "release-name-lattice",
        "stale-map",
        "stale-map-pin",
        "map-full",
    ];

    #[test]
    fn three_names_are_shown_the_nearest_first() {
        assert_eq!(
            meant("stale-mab", NAMES),
            "; did you mean stale-map or stale-map-pin?"
        );
        assert_eq!(
            meant("mao", NAMES),
            "; did you mean release-map, stale-map or stale-map-pin?"
        );
        assert_eq!(meant("^Latice$", NAMES), "; did you mean release-name-lattice?");
    }

    #[test]
    fn a_name_that_is_like_none_has_none() {
        for text in ["zzz", "", "^$", "a-b-c-d-e-f"] {
            assert_eq!(meant(text, NAMES), "", "{text}");
        }
        assert_eq!(meant("x", []), "");
    }

    #[test]
    fn an_unknown_name_is_one_sentence_with_or_without_others() {
        assert_eq!(
            unknown("map", "map-ful", NAMES, "maps"),
            "there is no map map-ful; did you mean map-full? `maps` shows all"
        );
        assert_eq!(
            unknown("map", "zzz", NAMES, "maps"),
            "there is no map zzz: `maps` shows all"
        );
    }
}
