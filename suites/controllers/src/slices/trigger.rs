//! The time of the change behind a write: the annotation `endpoints.kubernetes.io/last-change-trigger-time`, by which proxies
//! measure their latency.
//!
//! Source: `staging/src/k8s.io/endpointslice/trigger_time_tracker.go` of Kubernetes 1.36.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{Pod, Service},
        discovery::v1::EndpointSlice,
    },
    jiff::Timestamp,
};
use kube::ResourceExt;

use crate::cache::{Key, key};

const ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The times of each service and its pods at the last call. Bound: the services, and the pods that they select.
#[derive(Default)]
pub(super) struct Triggers {
    services: BTreeMap<Key, Times>,
}

struct Times {
    /// When the readiness of each pod changed.
    pods: BTreeMap<String, Timestamp>,
    service: Option<Timestamp>,
}

impl Triggers {
    /// The earliest change since the last call; for a new service, its creation. `None` if nothing with a time has changed.
    pub(super) fn changed<'a>(
        &mut self,
        service: &Service,
        pods: impl Iterator<Item = &'a Pod>,
    ) -> Option<Timestamp> {
        let created = service.creation_timestamp().map(|time| time.0);
        let pods: BTreeMap<String, Timestamp> = pods
            .filter_map(|pod| Some((pod.name_any(), readiness_changed(pod)?)))
            .collect();
        let now = Times {
            pods,
            service: created,
        };
        let earliest = match self.services.get(&key(service)) {
            None => created,
            Some(before) => {
                let later = |(name, at): (&String, &Timestamp)| {
                    let is_later = before.pods.get(name).is_none_or(|before| at > before);
                    is_later.then_some(*at)
                };
                let recreated = created.filter(|_| created > before.service);
                now.pods.iter().filter_map(later).chain(recreated).min()
            }
        };
        self.services.insert(key(service), now);
        earliest
    }

    /// Removes a service that was deleted.
    pub(super) fn forget(&mut self, service: &Key) {
        self.services.remove(service);
    }
}

/// Annotates a slice before it is written. Without a time, an old annotation is removed.
pub(super) fn annotate(slice: &mut EndpointSlice, trigger: Option<Timestamp>) {
    match trigger {
        Some(at) => drop(
            slice
                .annotations_mut()
                .insert(ANNOTATION.to_owned(), at.to_string()),
        ),
        None => drop(slice.annotations_mut().remove(ANNOTATION)),
    }
}

fn readiness_changed(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready
        .filter_map(|condition| condition.last_transition_time.as_ref())
        .map(|time| time.0)
        .next()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn service(created: i64) -> Service {
        let object = json!({"metadata": {"name": "s", "namespace": "n", "creationTimestamp": at(created).to_string()}});
        serde_json::from_value(object).expect("a service")
    }

    fn pod((name, changed): (&str, i64)) -> Pod {
        let condition =
            json!({"type": "Ready", "status": "True", "lastTransitionTime": at(changed).to_string()});
        let object = json!({"metadata": {"name": name}, "status": {"conditions": [condition]}});
        serde_json::from_value(object).expect("a pod")
    }

    #[test]
    fn the_earliest_change_since_the_last_time_counts() {
        let mut triggers = Triggers::default();
        let mut changed = |created: i64, pods: &[(&str, i64)]| {
            let pods: Vec<Pod> = pods.iter().map(|one| pod(*one)).collect();
            triggers.changed(&service(created), pods.iter())
        };
        assert_eq!(changed(5, &[("a", 3)]), Some(at(5)), "a new service was created");
        assert_eq!(changed(5, &[("a", 3)]), None, "nothing changed");
        let grown = [("a", 3), ("b", 9), ("c", 8)];
        assert_eq!(changed(5, &grown), Some(at(8)), "two pods came");
        assert_eq!(changed(5, &[("a", 11), ("b", 9), ("c", 8)]), Some(at(11)));
        assert_eq!(changed(5, &[("b", 9)]), None, "a pod that is gone has no time");
        assert_eq!(changed(20, &[("b", 9)]), Some(at(20)), "another of the same name");
        triggers.forget(&("n".to_owned(), "s".to_owned()));
        let forgotten = triggers.changed(&service(20), std::iter::empty());
        assert_eq!(forgotten, Some(at(20)));
    }

    #[test]
    fn a_slice_has_the_time_of_its_last_change_or_none() {
        let mut slice = EndpointSlice::default();
        annotate(&mut slice, Some(at(0)));
        assert_eq!(slice.annotations()[ANNOTATION], "1970-01-01T00:00:00Z");
        annotate(&mut slice, None);
        assert!(!slice.annotations().contains_key(ANNOTATION));
    }
}
