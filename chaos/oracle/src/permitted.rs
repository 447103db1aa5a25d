//! What a claim permits.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

/// A stopping server may end fewer than one of this many connections before the answer, at any time.
pub const CUT_OF: usize = 50;

/// What may happen to the probes of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permitted {
    /// Every probe is answered, by exactly these identities, and each of them is seen.
    Serves(BTreeSet<String>),
    /// Every probe is answered by one of these identities.
    ServesOneOf(BTreeSet<String>),
    /// Every probe is answered by one of these identities, or fails as with [`Permitted::Refuse`].
    ServesOrRefuses(BTreeSet<String>),
    /// Every probe is answered by one of these identities, or as with [`Permitted::None`]; what is in a backend's log is in one of
    /// theirs.
    ServesOrNone(BTreeSet<String>),
    /// Every datagram is in the log of one of these identities, and asks for no answer ([`PlanEntry::one_way`]).
    ///
    /// [`PlanEntry::one_way`]: crate::history::PlanEntry::one_way
    Delivered(BTreeSet<String>),
    /// Every probe is answered with a certificate that is valid for this name.
    Certified(String),
    /// Like [`Permitted::Certified`], while a server stops: connections may end before the answer, fewer than one of
    /// [`CUT_OF`], or only connections that were under way at one moment. With slow handshakes these are many.
    CertifiedOrCut(String),
    /// Every probe fails within the refusal limit with one of [`REFUSALS`](crate::check::REFUSALS).
    Refuse,
    /// Every probe is refused at any time, times out, or is answered by something that is no backend (the network may
    /// route an address that no Service has to a gateway), and its nonce is in no backend's log.
    None,
}

impl Permitted {
    /// Which backends may answer.
    #[must_use]
    pub fn identities(&self) -> Option<&BTreeSet<String>> {
        match self {
            Self::Serves(identities)
            | Self::ServesOneOf(identities)
            | Self::ServesOrRefuses(identities)
            | Self::ServesOrNone(identities) => Some(identities),
            Self::Delivered(_) | Self::Certified(_) | Self::CertifiedOrCut(_) | Self::Refuse | Self::None => {
                None
            }
        }
    }

    /// Whether the logs of backends decide it: of what was not answered, too.
    #[must_use]
    pub fn is_decided_by_logs(&self) -> bool {
        matches!(self, Self::ServesOrNone(_) | Self::None)
    }

    /// Whether it permits a refusal that comes in time, and none that comes late.
    pub(crate) fn has_refusals_in_time(&self) -> bool {
        matches!(self, Self::ServesOrRefuses(_) | Self::Refuse)
    }
}

impl fmt::Display for Permitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serves(identities) => {
                write!(f, "every probe served by exactly {{{}}}", listed(identities))
            }
            Self::ServesOneOf(identities) => {
                write!(f, "every probe served by one of {{{}}}", listed(identities))
            }
            Self::ServesOrRefuses(identities) => {
                write!(
                    f,
                    "every probe refused or served by one of {{{}}}",
                    listed(identities)
                )
            }
            Self::ServesOrNone(identities) => {
                write!(
                    f,
                    "every probe served by one of {{{}}}, or no backend reached",
                    listed(identities)
                )
            }
            Self::Delivered(identities) => {
                write!(f, "every datagram delivered to one of {{{}}}", listed(identities))
            }
            Self::Certified(name) => write!(f, "every probe answered with a certificate for {name}"),
            Self::CertifiedOrCut(name) => write!(
                f,
                "every probe connected, and answered with a certificate for {name} but for 1 of {CUT_OF}, or those \
                 that were under way at one moment"
            ),
            Self::Refuse => f.write_str("every probe refused"),

            Self::None => {
                f.write_str("no backend reached: every probe refused, silent or answered by no backend, and none delivered")
            }
        }
    }
}

fn listed(identities: &BTreeSet<String>) -> String {
    let names: Vec<_> = identities.iter().map(String::as_str).collect();
    names.join(", ")
}
