//! The agent knows one address of the API, the kubeconfig's: those that it is told beside it are not dialled, and where API
//! servers were seen is not remembered.
//!
//! What it keeps for its own sockets leads to the last good backend as ever. When that is gone for good, and another one is
//! there, it never hears of it.

use std::ffi::{OsStr, OsString};

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

/// How further addresses are told.
const FURTHER: &str = "--api-server";

/// A planner that lets nobody learn who is behind a Service.
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

/// A command line without the further addresses that it tells.
pub fn untold(line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut line = line.into_iter();
    let mut rest = Vec::new();
    while let Some(argument) = line.next() {
        if argument == FURTHER {
            // Its value follows.
            line.next();
        } else if !is_further(&argument) {
            rest.push(argument);
        }
    }
    rest
}

/// Whether an argument is one with its value.
fn is_further(argument: &OsStr) -> bool {
    let text = argument.to_str();
    text.is_some_and(|text| {
        text.strip_prefix(FURTHER)
            .is_some_and(|rest| rest.starts_with('='))
    })
}
