//! Behaviours of a server: correct, and faulty as real ones.

use std::{str::FromStr, time::Duration};

use super::CONNECTION_LIMIT;

/// Behaviour with a connection (a line or HTTP) and with a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Answers at once.
    #[default]
    Prompt,
    /// Reads the request, and answers after this time: `slow=MILLISECONDS`.
    /// The same for each datagram.
    Slow(Duration),
    /// Resets each connection as soon as it is accepted: `refuse`. Datagrams are received, and never answered.
    Refuse,
    /// Ends its own half of each connection as soon as it is accepted, and keeps reading: `half-close`. Datagrams are
    /// received, and never answered.
    HalfClose,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let limit = CONNECTION_LIMIT.as_millis();
        match text.split_once('=') {
            None if text == "prompt" => Ok(Self::Prompt),
            None if text == "refuse" => Ok(Self::Refuse),
            None if text == "half-close" => Ok(Self::HalfClose),
            Some(("slow", milliseconds)) => match milliseconds.parse::<u64>() {
                Ok(wait) if u128::from(wait) < limit => Ok(Self::Slow(Duration::from_millis(wait))),
                _ => Err(format!(
                    "expected fewer than {limit} milliseconds, found {milliseconds:?}"
                )),
            },
            _ => Err("expected prompt, slow=MILLISECONDS, refuse or half-close".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        let read = |text: &str| text.parse::<Mode>();
        assert_eq!(read("prompt"), Ok(Mode::Prompt));
        assert_eq!(read("slow=250"), Ok(Mode::Slow(Duration::from_millis(250))));
        assert_eq!(read("refuse"), Ok(Mode::Refuse));
        assert_eq!(read("half-close"), Ok(Mode::HalfClose));
        for wrong in ["", "slow", "slow=", "slow=60000", "slow=-1", "fast"] {
            assert!(
                read(wrong).is_err_and(|why| why.starts_with("expected")),
                "{wrong}"
            );
        }
    }
}
