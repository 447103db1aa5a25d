//! Objects of ended cases are deleted while other cases run; a run waits if too many are being deleted.

use std::time::Duration;

use harness::{
    cleanup::Made,
    objects::{CASE_LABEL, RUN_LABEL},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    LIMIT,
    existing::{lab, namespaces},
    privileged,
};

const RUN: &str = "run-1-ending";

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_of_cases_end_without_a_wait_until_there_are_too_many() {
    if !privileged() {
        return;
    }
    let lab = lab("existing-ending").await;
    let api: Api<Namespace> = Api::all(lab.cluster().client());
    let names = ["p1-000", "p1-001", "p2-000"];
    for (name, case) in names.into_iter().zip(["one", "one", "two"]) {
        // Like a namespace whose pods a kubelet has not ended yet.
        let namespace = json!({"metadata": {
            "name": name, "labels": {RUN_LABEL: RUN, CASE_LABEL: case}, "finalizers": ["example.com/held"],
        }});
        let namespace = serde_json::from_value(namespace).unwrap();
        api.create(&PostParams::default(), &namespace).await.unwrap();
    }
    let of = |case| Made {
        run: RUN,
        case,
        confined: None,
    };
    let client = lab.cluster().client();
    let soon = Duration::from_millis(500);
    of(Some("one")).remove(&client, LIMIT).await.unwrap();
    of(None).until_few_end(&client, 1, LIMIT).await.unwrap();
    let late = of(None).until_few_end(&client, 0, soon).await.unwrap_err();
    assert!(late.to_string().contains("is not gone within 500ms"), "{late}");

    of(Some("two")).remove(&client, LIMIT).await.unwrap();
    of(None).until_few_end(&client, 2, LIMIT).await.unwrap();
    assert!(of(None).until_few_end(&client, 1, soon).await.is_err());
    assert!(of(None).cleanup(&client, soon).await.is_err(), "they are there");

    for name in names {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
    of(None).until_few_end(&client, 0, LIMIT).await.unwrap();
    of(None).cleanup(&client, LIMIT).await.unwrap();
    assert_eq!(namespaces(&lab).await, Vec::<String>::new());
    lab.down().await.unwrap();
}
