//! Names of labs.

use super::LabError;

/// Default name of a lab.
pub const DEFAULT_NAME: &str = "lab";

/// Checks the name of a lab, which is used for a folder, a cgroup and a socket's path: 1 to 32 of `a-z`, `0-9` and
/// `-`, with no `-` at either end.
///
/// # Errors
/// The name is invalid.
pub fn check_name(name: &str) -> Result<(), LabError> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = (1..=32).contains(&name.len())
        && name.bytes().all(good)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if fits {
        Ok(())
    } else {
        Err(LabError::Name {
            found: name.to_owned(),
        })
    }
}
