//! Names of objects, labels and ports (`k8s.io/apimachinery/pkg/util/validation`).
//!
//! Each function returns upstream's messages, or none if the name is valid.

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                     must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex \
                     used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
                         or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
                         regex used for validation is \
                         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
                         end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex \
                         used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
                           or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
                           'my_value',  or '12345', regex used for validation is \
                           '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
                          'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
                          '[-._a-zA-Z0-9]+')";

fn is_lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    text.starts_with(is_lower) && text.ends_with(is_lower) && text.chars().all(|c| is_lower(c) || c == '-')
}

fn too_long(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} bytes"))
}

/// RFC 1123 label: namespaces, services, port names.
pub(super) fn dns_label(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push("must be no more than 63 characters".into());
    }
    if text.contains('.') && text.split('.').all(is_label) {
        wrong.push("must not contain dots".into());
    } else if !is_label(text) {
        wrong.push(LABEL.into());
    }
    wrong
}

/// RFC 1123 subdomain: pods, nodes, EndpointSlices.
pub(super) fn dns_subdomain(text: &str) -> Vec<String> {
    let mut wrong = Vec::from_iter(too_long(text, 253));
    if text.is_empty() || !text.split('.').all(is_label) {
        wrong.push(SUBDOMAIN.into());
    }
    wrong
}

fn is_loose(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.'))
}

/// `[prefix/]name`: keys of labels and annotations.
pub(super) fn qualified_name(text: &str) -> Vec<String> {
    let (prefix, name) = match text.split_once('/') {
        None => (None, text),
        Some((prefix, name)) if !name.contains('/') => (Some(prefix), name),
        Some(_) => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. \
                     'example.com/MyName')",
                QUALIFIED.trim_start_matches("name part ")
            )];
        }
    };
    let mut wrong = Vec::new();
    match prefix {
        Some("") => wrong.push("prefix part must be non-empty".into()),
        Some(prefix) => wrong.extend(
            dns_subdomain(prefix)
                .into_iter()
                .map(|w| format!("prefix part {w}")),
        ),
        None => {}
    }
    if name.is_empty() {
        wrong.push("name part must be non-empty".into());
    }
    wrong.extend(too_long(name, 63).map(|w| format!("name part {w}")));
    if !is_loose(name) {
        wrong.push(QUALIFIED.into());
    }
    wrong
}

/// Keys of ConfigMaps and Secrets, which become names of files.
pub(super) fn config_key(text: &str) -> Vec<String> {
    let mut wrong = Vec::from_iter(too_long(text, 253));
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || !text.chars().all(fits) {
        wrong.push(CONFIG_KEY.into());
    }
    match text {
        "." => wrong.push("must not be '.'".into()),
        ".." => wrong.push("must not be '..'".into()),
        _ if text.starts_with("..") => wrong.push("must not start with '..'".into()),
        _ => {}
    }
    wrong
}

/// Values of labels.
pub(super) fn label_value(text: &str) -> Vec<String> {
    let mut wrong = Vec::from_iter(too_long(text, 63));
    if !text.is_empty() && !is_loose(text) {
        wrong.push(LABEL_VALUE.into());
    }
    wrong
}

/// IANA service name: named target ports.
pub(super) fn port_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 15 {
        wrong.push("must be no more than 15 characters".into());
    }
    if !text.chars().all(|c| is_lower(c) || c == '-') {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !text.contains(|c: char| c.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".into());
    }
    if text.contains("--") {
        wrong.push("must not contain consecutive hyphens".into());
    }
    if text.starts_with('-') || text.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".into());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_as_upstream_judges_them() {
        type Rule = fn(&str) -> Vec<String>;
        let rows: [(&str, Rule, &[&str], &[&str]); 6] = [
            (
                "config key",
                config_key,
                &["a", "A.b_c-1", ".hidden"],
                &["", "a b", "a/b", ".", "..", "..a"],
            ),
            (
                "label",
                dns_label,
                &["a", "1-a", "x0"],
                &["", "-a", "a-", "A", "a.b", "a_b"],
            ),
            (
                "subdomain",
                dns_subdomain,
                &["a.b", "1.2"],
                &["", "a..b", ".a", "a.", "A.b"],
            ),
            (
                "qualified",
                qualified_name,
                &["a", "x.io/A_b", "a.b"],
                &["", "/a", "x/", "a/b/c", "-a"],
            ),
            ("value", label_value, &["", "A.b_c"], &["-", "a b", "é"]),
            (
                "port",
                port_name,
                &["http", "h-2"],
                &["", "80", "-a", "a--b", "Http", "abcdefghijklmnop"],
            ),
        ];
        for (rule, judge, good, bad) in rows {
            for text in good {
                assert!(judge(text).is_empty(), "{rule}: {text:?}: {:?}", judge(text));
            }
            for text in bad {
                assert!(!judge(text).is_empty(), "{rule}: {text:?} is accepted");
            }
        }
        assert_eq!(dns_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
    }
}
