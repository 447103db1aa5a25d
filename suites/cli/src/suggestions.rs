//! Names similar to an unknown one, for errors.

/// Limit of shown names.
const MOST: usize = 3;

/// Least similarity of shown names, from 0 to 1: two of five letters may be wrong, missing or swapped.
const LEAST: f64 = 0.6;

/// How much less similar than the best match the other names may be: one wrong letter of seven.
const RANGE: f64 = 0.15;

/// `; near are A and B`: the names of which all or a part is similar to `text`. Empty, if none is.
pub(crate) fn near<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> String {
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
        [one] => format!("; near is {one}"),
        [first @ .., last] => format!("; near are {} and {last}", first.join(", ")),
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
        assert_eq!(near("stale-mab", NAMES), "; near are stale-map and stale-map-pin");
        assert_eq!(
            near("mao", NAMES),
            "; near are release-map, stale-map and stale-map-pin"
        );
        assert_eq!(near("^Latice$", NAMES), "; near is release-name-lattice");
    }

    #[test]
    fn a_name_that_is_like_none_has_none() {
        for text in ["zzz", "", "^$", "a-b-c-d-e-f"] {
            assert_eq!(near(text, NAMES), "", "{text:?}");
        }
        assert_eq!(near("x", []), "");
    }
}
