//! Leaves out values of an agent's configuration whose names suggest secrets.

/// Replaces a value that may be a secret.
pub const LEFT_OUT: &str = "(left out)";

/// Parts of the names of secrets.
const SECRET: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "token",
    "secret",
    "credential",
    "privatekey",
    "apikey",
    "accesskey",
];

/// Most letters shown of one argument or value.
const MOST: usize = 300;

/// Whether a name suggests a secret.
#[must_use]
pub fn is_secret(name: &str) -> bool {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let plain: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    SECRET.iter().any(|part| plain.contains(part))
}

/// A value without the password of a URL, shortened if it is long.
#[must_use]
pub fn value(name: &str, value: &str) -> String {
    let has_password = value
        .split_once("://")
        .is_some_and(|(_, rest)| rest.split('/').next().is_some_and(|host| host.contains('@')));
    if is_secret(name) || has_password {
        return LEFT_OUT.to_owned();
    }
    let mut shown: String = value.chars().take(MOST).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    shown
}

/// Arguments with secrets left out: `--token=(left out)`, `--token (left out)`.
#[must_use]
pub fn arguments<'a>(arguments: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut follows_secret = false;
    let mut shown = Vec::new();
    for argument in arguments {
        let is_option = argument.starts_with('-');
        let text = match argument.split_once('=') {
            Some((name, given)) if is_option => format!("{name}={}", value(name, given)),
            _ if follows_secret && !is_option => LEFT_OUT.to_owned(),
            _ => value("", argument),
        };
        follows_secret = is_option && !argument.contains('=') && is_secret(argument);
        shown.push(text);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_may_be_secrets_are_left_out() {
        let given = [
            "--config-dir=/tmp/cilium",
            "--api-token=abc",
            "--password",
            "abc",
            "--etcd=https://user:abc@host:2379",
            "--kvstore-opt=https://host:2379/a@b",
        ]
        .map(str::to_owned);
        assert_eq!(
            arguments(&given),
            [
                "--config-dir=/tmp/cilium",
                "--api-token=(left out)",
                "--password",
                "(left out)",
                "--etcd=(left out)",
                "--kvstore-opt=https://host:2379/a@b",
            ]
        );
        assert!(is_secret("AWS_ACCESS_KEY_ID") && is_secret("private-key") && !is_secret("keyring"));
        assert_eq!(value("MODE", "a"), "a");
        assert_eq!(value("MODE", &"x".repeat(MOST + 1)).chars().count(), MOST + 1);
    }
}
