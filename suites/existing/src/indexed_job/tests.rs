//! A Job on an API server whose objects are chosen by the test.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::{manifest::tests::options, *};

/// An API server with these objects.
#[derive(Debug, Default)]
struct Server {
    pods: Vec<Value>,
    /// Conditions of the Job; `None`: there is no Job.
    conditions: Option<Vec<Value>>,
    /// Messages of events about pods that could not be made.
    events: Vec<&'static str>,
    /// What was deleted.
    deleted: Vec<String>,
}

type SharedServer = Arc<Mutex<Server>>;

impl Server {
    fn answer(&mut self, method: &Method, path: &str) -> (StatusCode, String) {
        let list = |kind: &str, items: Value| {
            json!({ "apiVersion": "v1", "kind": kind, "metadata": {}, "items": items }).to_string()
        };
        let gone = || {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "gone",
                "reason": "NotFound", "code": 404,
            });
            (StatusCode::NOT_FOUND, status.to_string())
        };
        if *method == Method::DELETE {
            self.deleted.push(path.to_owned());
            return gone();
        }
        let text = match path.rsplit_once('/').unwrap_or_default() {
            (pod, "log") if pod.ends_with("/lost") => return gone(),
            (pod, "log") => format!("the log of {}", pod.rsplit('/').next().unwrap_or_default()),
            (_, "pods") => list("PodList", json!(self.pods)),
            (_, "events") => {
                let event =
                    |message: &&str| json!({ "metadata": {}, "involvedObject": {}, "message": message });
                list("EventList", self.events.iter().map(event).collect())
            }
            _ => match &self.conditions {
                None => return gone(),
                Some(conditions) => {
                    let status = json!({ "conditions": conditions });
                    json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "status": status })
                        .to_string()
                }
            },
        };
        (StatusCode::OK, text)
    }
}

/// A Job, and the server that it is on.
fn job(server: Server) -> (IndexedJob, SharedServer) {
    let server = Arc::new(Mutex::new(server));
    let shared = Arc::clone(&server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, text) = shared
            .lock()
            .unwrap()
            .answer(request.method(), request.uri().path());
        let answer = Response::builder()
            .status(code)
            .body(Body::from(text.into_bytes()));
        std::future::ready(Ok::<_, Infallible>(answer.unwrap()))
    });
    let job = IndexedJob {
        client: Hidden(Client::new(service, "default")),
        namespace: "ns".to_owned(),
        options: options(),
        began: Instant::now(),
        done: BTreeSet::new(),
        has_run: false,
    };
    (job, server)
}

fn pod(name: &str, index: u32, status: &Value) -> Value {
    let annotations = json!({ "batch.kubernetes.io/job-completion-index": index.to_string() });
    json!({ "metadata": { "name": name, "annotations": annotations }, "status": status })
}

fn waits(reason: &str) -> Value {
    json!({ "phase": "Pending", "containerStatuses": [{
        "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": { "waiting": { "reason": reason } },
    }]})
}

#[tokio::test]
async fn each_index_is_handed_out_once_with_its_log_and_how_its_pod_ended() {
    let (mut job, server) = job(Server {
        pods: vec![
            pod("whole", 0, &json!({ "phase": "Succeeded" })),
            pod("lost", 1, &json!({ "phase": "Failed", "reason": "Evicted" })),
            pod("busy", 2, &json!({ "phase": "Running" })),
            pod("stuck", 3, &waits("ImagePullBackOff")),
            pod("new", 4, &json!({ "phase": "Pending" })),
        ],
        conditions: Some(Vec::new()),
        ..Server::default()
    });
    let look = job.look().await.unwrap();
    let ended: Vec<_> = look
        .ended
        .iter()
        .map(|end| (end.index, end.why.as_deref(), end.log.is_ok()))
        .collect();
    assert_eq!(
        ended,
        [
            (0, None, true),
            (1, Some("its pod ended: Evicted"), false),
            (3, Some("ImagePullBackOff"), false),
        ]
    );
    assert_eq!(look.ended[0].log.as_deref(), Ok("the log of whole"));
    assert_eq!((&*look.running, look.waiting, &look.over), (&[2][..], 1, &None));
    let deleted = server.lock().unwrap().deleted.clone();
    let names: Vec<&str> = deleted
        .iter()
        .filter_map(|path| path.rsplit('/').next())
        .collect();
    assert_eq!(names, ["whole", "lost", "stuck"]);
    // Their deletion takes a while.
    assert_eq!(job.look().await.unwrap().ended, []);
}

#[tokio::test]
async fn indexes_without_a_pod_are_told_when_the_job_is_over() {
    let failed =
        json!({ "type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long" });
    for (conditions, over) in [
        (
            Some(vec![failed]),
            Some("the Job failed: DeadlineExceeded: too long"),
        ),
        (
            Some(vec![json!({ "type": "Complete", "status": "True" })]),
            Some("the Job is complete"),
        ),
        (Some(vec![json!({ "type": "Failed", "status": "False" })]), None),
        (None, Some("the Job was deleted")),
    ] {
        let (mut job, server) = job(Server {
            pods: vec![pod("last", 9, &json!({ "phase": "Succeeded" }))],
            conditions,
            ..Server::default()
        });
        let look = job.look().await.unwrap();
        assert_eq!((look.ended.len(), &look.over), (1, &None), "results first");
        server.lock().unwrap().pods.clear();
        assert_eq!(job.look().await.unwrap().over.as_deref(), over);
    }
}

#[tokio::test(start_paused = true)]
async fn what_keeps_all_pods_from_running_is_said_and_not_waited_for() {
    let there = || Some(Vec::new());
    let (mut refused, _) = job(Server {
        conditions: there(),
        events: vec![
            "error looking up service account",
            "pods \"x\" is forbidden: violates PodSecurity",
        ],
        ..Server::default()
    });
    assert_eq!(refused.look().await.unwrap(), Look::default());
    tokio::time::advance(LIMITS.first_pod).await;
    let error = refused.look().await.unwrap_err().to_string();
    for part in [
        "ns/plumbline-sweep-1 gets no pods",
        "violates PodSecurity",
        "enforce=privileged",
    ] {
        assert!(error.contains(part), "{error}");
    }

    let (mut without_account, _) = job(Server {
        conditions: there(),
        events: vec!["error looking up service account"],
        ..Server::default()
    });
    tokio::time::advance(LIMITS.first_pod + Duration::from_secs(1)).await;
    assert!(without_account.look().await.is_ok(), "a controller makes it");

    let (mut no_image, _) = job(Server {
        pods: vec![pod("stuck", 0, &waits("ImagePullBackOff"))],
        conditions: there(),
        ..Server::default()
    });
    let error = no_image.look().await.unwrap_err().to_string();
    assert!(
        error.contains("r/lab:1") && error.contains("ImagePullBackOff"),
        "{error}"
    );

    let unscheduled = json!({ "phase": "Pending", "conditions": [
        { "type": "PodScheduled", "status": "False", "message": "0/3 nodes are available" },
    ]});
    let (mut no_room, _) = job(Server {
        pods: vec![pod("new", 0, &unscheduled)],
        conditions: there(),
        ..Server::default()
    });
    assert_eq!(
        no_room.look().await.unwrap().because.as_deref(),
        Some("0/3 nodes are available")
    );
    tokio::time::advance(LIMITS.pods).await;
    let error = no_room.look().await.unwrap_err().to_string();
    assert!(
        error.contains("0/3 nodes are available") && error.contains("--image-arch"),
        "{error}"
    );
}
