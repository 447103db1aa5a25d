//! Actions and calls as text.

use std::fmt;

use super::{
    schedule::{Action, Condition, Does, Endpoint, HOMES, Namespace, Service, Slice, home},
    world::{Call, Front},
};

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7.3} s  {}", f64::from(self.at_ms) / 1e3, self.does)
    }
}

impl fmt::Display for Does {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(write) => match &write.to {
                None => write!(f, "Service {} is deleted", service(write.service)),
                Some(to) => write!(f, "Service {}{to}", service(write.service)),
            },
            Self::Annotate(number) => write!(f, "Service {} is annotated", service(*number)),
            Self::Slice(write) => match &write.to {
                None => write!(f, "slice {} is deleted", slice(write.slice)),
                Some(to) => write!(f, "slice {} {to}", slice(write.slice)),
            },
            Self::Fault(fault) => {
                f.write_str(fault.kind.words())?;
                if let Some(node) = fault.node {
                    write!(f, ", node {node}")?;
                }
                if !fault.kind.is_of_a_moment() {
                    write!(f, ", for {:.1} s", f64::from(fault.lasts_ms) / 1e3)?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service {
                service: number, to, ..
            } => write!(f, "Service {}{to}", service(*number)),
            Self::Annotate(number) => write!(f, "Service {} is annotated", service(*number)),
            Self::DeleteService(number) => write!(f, "Service {} is deleted", service(*number)),
            Self::Slice {
                slice: number, to, ..
            } => write!(f, "slice {} {to}", slice(*number)),
            Self::DeleteSlice(number) => write!(f, "slice {} is deleted", slice(*number)),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node_port {
            None => f.write_str(" has no node port")?,
            Some(port) => write!(f, " has node port {port}")?,
        }
        let also = [
            (self.affinity, "session affinity"),
            (self.internal_local, "internal policy Local"),
            (self.external_local, "external policy Local"),
        ];
        also.iter()
            .filter(|(has, _)| *has)
            .try_for_each(|(_, what)| write!(f, ", {what}"))
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of {} lists ", service(self.of))?;
        match self.endpoints.as_deref() {
            None => f.write_str("null"),
            Some([]) => f.write_str("[]"),
            Some(all) => {
                let all: Vec<String> = all.iter().map(Endpoint::to_string).collect();
                f.write_str(&all.join(", "))
            }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&backend(self.backend))?;
        f.write_str(match self.condition {
            Condition::Ready => "",
            Condition::Unready => " (unready)",
            Condition::Terminating => " (terminating)",
            Condition::Stopped => " (stopped)",
            Condition::Published => " (published)",
        })
    }
}

impl fmt::Display for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterIp(number) | Self::LoadBalancer(number) => {
                write!(f, "{} {}", service(*number), self.kind())
            }
            Self::NodePort(number) => write!(f, "{} {number}", self.kind()),
        }
    }
}

/// A Service by its name, and by its namespace where another one has the same name.
pub(crate) fn service(number: u8) -> String {
    let (namespace, name) = HOMES[usize::from(number) % HOMES.len()];
    match namespace {
        Namespace::Prefixes => name.to_owned(),
        Namespace::First => format!("first/{name}"),
        Namespace::Second => format!("second/{name}"),
    }
}

/// A slice by the name of its home, and its part.
pub(super) fn slice(number: u8) -> String {
    let name = service(number / 2);
    format!("{name}-{}", slice_part(number))
}

fn slice_part(number: u8) -> u8 {
    number % 2 + 1
}

/// Name of a slice in its namespace.
pub(super) fn slice_name(number: u8) -> String {
    format!("{}-{}", home(number).1, slice_part(number))
}

/// Name of a backend.
pub(super) fn backend(number: u8) -> String {
    format!("b{}", number + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::schedule::{Fault, FaultKind, ServiceWrite, SliceWrite};

    #[test]
    fn an_action_reads_as_a_line() {
        let words = |does| Action { at_ms: 1500, does }.to_string();
        let endpoint = |backend, condition| Endpoint { backend, condition };
        let listed = vec![endpoint(0, Condition::Ready), endpoint(2, Condition::Terminating)];
        let slice = |endpoints| {
            Does::Slice(SliceWrite {
                slice: 7,
                to: Some(Slice { of: 3, endpoints }),
            })
        };
        assert_eq!(
            words(slice(Some(listed))),
            "  1.500 s  slice first/u-2 of first/u lists b1, b3 (terminating)"
        );
        assert_eq!(
            words(slice(None)),
            "  1.500 s  slice first/u-2 of first/u lists null"
        );
        let deleted = Does::Service(ServiceWrite { service: 1, to: None });
        assert_eq!(words(deleted), "  1.500 s  Service t-ext is deleted");
        let fault = Does::Fault(Fault {
            kind: FaultKind::AgentDown,
            node: Some(2),
            lasts_ms: 2500,
        });
        assert_eq!(
            words(fault),
            "  1.500 s  the agent is stopped for a while, node 2, for 2.5 s"
        );
    }
}
