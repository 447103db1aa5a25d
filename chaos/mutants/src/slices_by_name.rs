//! Slices are identified by their names alone, whatever their namespaces.
//!
//! Cilium 1.18.5 beside incident 1 (cilium/cilium#43999): if two namespaces have slices of one name, a written slice is
//! compared with the last written one of either. Its endpoints are added, and its earlier ones are not removed: an
//! emptied Service keeps its backends until its slice is deleted.

use std::collections::HashMap;

use reference_agent::{
    control::DesiredState,
    model::{Dirty, Endpoint, Event, Model, Slice},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

/// A planner that loses track of slices' earlier endpoints.
#[derive(Debug)]
pub struct SlicesByName<B> {
    inner: B,
    /// By the name without namespace: the slice that was written last.
    last: HashMap<String, ObjectName>,
    /// Endpoints of slices, with those that were never removed.
    kept: HashMap<ObjectName, Vec<Endpoint>>,
}

impl<B: DesiredState> SlicesByName<B> {
    /// Wraps another planner.
    pub fn new(inner: B) -> Self {
        Self {
            inner,
            last: HashMap::new(),
            kept: HashMap::new(),
        }
    }

    fn written(&mut self, mut slice: Slice) -> Slice {
        let bare = slice.name.name.to_string();
        let before = self.last.insert(bare, slice.name.clone());
        if before.is_some_and(|before| before != slice.name) {
            let listed = self.kept.get(&slice.name).cloned().unwrap_or_default();
            let is_listed = |slice: &Slice, one: &Endpoint| {
                slice.endpoints.iter().any(|other| other.address == one.address)
            };
            for one in listed {
                if !is_listed(&slice, &one) {
                    slice.endpoints.push(one);
                }
            }
        }
        self.kept.insert(slice.name.clone(), slice.endpoints.clone());
        slice
    }
}

impl<B: DesiredState> DesiredState for SlicesByName<B> {
    fn apply(&mut self, event: Event) -> Dirty {
        let event = match event {
            Event::SliceApplied(slice) => Event::SliceApplied(self.written(slice)),
            Event::SliceDeleted(name) => {
                self.kept.remove(&name);
                self.last.retain(|_, last| *last != name);
                Event::SliceDeleted(name)
            }
            other => other,
        };
        self.inner.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        self.inner.plan_service(service)
    }

    fn model(&self) -> &Model {
        self.inner.model()
    }
}
