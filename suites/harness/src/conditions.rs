//! Conditions of endpoints in hand-written EndpointSlices, as the controller of EndpointSlices writes them (KEP-1672).

use cluster::Family;
use serde_json::{Value, json};

use crate::{pods::Backend, verdict::Halt};

/// What an EndpointSlice says of an endpoint. The backend itself serves all the while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// Ready.
    Ready,
    /// Not ready, and not terminating.
    Unready,
    /// Terminating, and still serving.
    Draining,
    /// Terminating, and not serving any more.
    Stopped,
}

impl Condition {
    /// The conditions `ready`, `serving` and `terminating`.
    fn values(self) -> [bool; 3] {
        match self {
            Self::Ready => [true, true, false],
            Self::Unready => [false, false, false],
            Self::Draining => [false, true, true],
            Self::Stopped => [false, false, true],
        }
    }

    /// An endpoint of a backend in this condition.
    pub fn endpoint(self, backend: &Backend, family: Family) -> Result<Value, Halt> {
        let [ready, serving, terminating] = self.values();
        let mut endpoint = backend.endpoint(family, ready)?;
        endpoint["conditions"] = json!({ "ready": ready, "serving": serving, "terminating": terminating });
        Ok(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_draining_endpoint_serves_without_being_ready() {
        let backend = Backend {
            namespace: "p".to_owned(),
            in_api: "b".to_owned(),
            node: "node1".to_owned(),
            addresses: vec!["10.0.0.1".parse().unwrap()],
        };
        let conditions = |condition: Condition| {
            let endpoint = condition.endpoint(&backend, Family::IPv4).unwrap();
            assert_eq!(endpoint["addresses"], json!(["10.0.0.1"]));
            endpoint["conditions"].clone()
        };
        let expected = |ready: bool, serving: bool, terminating: bool| json!({ "ready": ready, "serving": serving, "terminating": terminating });
        assert_eq!(conditions(Condition::Ready), expected(true, true, false));
        assert_eq!(conditions(Condition::Unready), expected(false, false, false));
        assert_eq!(conditions(Condition::Draining), expected(false, true, true));
        assert_eq!(conditions(Condition::Stopped), expected(false, false, true));
    }
}
