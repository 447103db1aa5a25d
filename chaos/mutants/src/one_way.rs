//! The agent knows one address of the API, the kubeconfig's: it does not dial the addresses of other options, and does
//! not remember addresses of API servers.
//!
//! Its own sockets still reach the last good backend. When that is gone permanently, and another one exists, the agent
//! does not learn about it.

use std::ffi::{OsStr, OsString};

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

/// The option for further addresses.
const FURTHER: &str = "--api-server";

/// A planner that does not report the endpoints of a Service.
#[derive(Debug, Default)]
pub struct OneWay(pub Planner);

impl DesiredState for OneWay {
    fn apply(&mut self, event: Event) -> Dirty {
        self.0.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        self.0.plan_service(service)
    }

    fn plan_api_access(&self, _: ObjectId) -> ServicePlan {
        ServicePlan::default()
    }

    fn model(&self) -> &Model {
        self.0.model()
    }
}

/// The command line without the options for further addresses.
pub fn without_further_servers(line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut line = line.into_iter();
    let mut rest = Vec::new();
    while let Some(argument) = line.next() {
        if argument == FURTHER {
            // Skips the option's value.
            line.next();
        } else if !is_further(&argument) {
            rest.push(argument);
        }
    }
    rest
}

/// Whether an argument contains the option and its value.
fn is_further(argument: &OsStr) -> bool {
    let text = argument.to_str();
    text.is_some_and(|text| {
        text.strip_prefix(FURTHER)
            .is_some_and(|rest| rest.starts_with('='))
    })
}
