//! What a claim permits.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

/// A server that stops may end fewer than one connection of so many in the middle, whenever: it may end them by and by.
pub const CUT_OF: usize = 50;

/// What may happen to the probes of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permitted {
    /// Every probe is answered, by exactly these identities, and each of them is seen.
    Serves(BTreeSet<String>),
    /// Every probe is answered by one of these identities, whichever.
    ServesOneOf(BTreeSet<String>),
    /// The same, or it fails as with [`Permitted::Refuse`].
    ServesOrRefuses(BTreeSet<String>),
    /// Every probe is answered with a certificate that is valid for this name.
    Certified(String),
    /// The same, but connections may end before the answer: whoever answers stops meanwhile. Fewer than one of [`CUT_OF`], or
    /// only such as were under way at one moment: with slow handshakes these are many.
    CertifiedOrCut(String),
    /// Every probe fails within the refusal limit with one of [`REFUSALS`](crate::check::REFUSALS).
    Refuse,
    /// Every probe hears nothing.
    Silent,
    /// A refusal, whenever it comes, or SILENT for every probe, or the voice of what is no backend (rule 8 of the catalogue:
    /// the address is nobody's, so the network may lead it to a gateway), and its nonce is in no backend's log.
    None,
}

impl Permitted {
    /// Who may answer, where that is said by identities.
    #[must_use]
    pub fn identities(&self) -> Option<&BTreeSet<String>> {
        match self {
            Self::Serves(identities) | Self::ServesOneOf(identities) | Self::ServesOrRefuses(identities) => {
                Some(identities)
            }
            Self::Certified(_) | Self::CertifiedOrCut(_) | Self::Refuse | Self::Silent | Self::None => None,
        }
    }

    /// Whether a refusal is inside that comes in time, and no other.
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
                    "every probe REFUSEd or served by one of {{{}}}",
                    listed(identities)
                )
            }
            Self::Certified(name) => write!(f, "every probe answered with a certificate for {name}"),
            Self::CertifiedOrCut(name) => write!(
                f,
                "every probe connected, and answered with a certificate for {name} but for 1 of {CUT_OF}, or those \
                 that were under way at one moment"
            ),
            Self::Refuse => f.write_str("every probe REFUSEd"),
            Self::Silent => f.write_str("SILENCE for every probe"),
            Self::None => {
                f.write_str("NONE: every probe refused, silent or answered by no backend, and none delivered")
            }
        }
    }
}

fn listed(identities: &BTreeSet<String>) -> String {
    let names: Vec<_> = identities.iter().map(String::as_str).collect();
    names.join(", ")
}
