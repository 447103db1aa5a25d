//! Whether Services of type LoadBalancer get addresses, found out before a run.
//!
//! A target claims that it serves such addresses. Another part of the cluster assigns them, if it has one.

use std::time::{Duration, Instant};

use cluster::{Cluster, Family};
use kube::{
    Client,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    cleanup::Made,
    frontends::balancers,
    limits::Limits,
    names::Kind,
    objects::{CASE_LABEL, RUN_LABEL},
    requests::{all, answered, refused},
    verdict::Halt,
};

/// In the label of a case: what is made here goes as what a case has made, also after a run that was killed.
const LABEL: &str = "load-balancer-addresses";
/// From one look to the next.
const LOOK: Duration = Duration::from_millis(250);

/// Makes a Service of type LoadBalancer of each family that the cluster has, waits until each has an address, for as long as cases do
/// (T_svc), and removes them again. Returns why there are none, in words; `None`: there are.
///
/// # Errors
/// What the API refuses to make or to show. What was made is removed all the same.
pub async fn lacking(cluster: &Cluster, run: &str, limits: &Limits) -> Result<Option<String>, Halt> {
    let described = cluster.describe();
    let confined = described.confined.as_deref();
    let client = cluster.client();
    let found = given(&client, run, confined, &described.families(), limits.service).await;
    let made = Made {
        run,
        case: Some(LABEL),
        confined,
    };
    // What is left goes with the run, whose end says what stays.
    let _ = made.remove(&client, limits.cleanup).await;
    let without = found?;
    Ok((!without.is_empty()).then(|| {
        let without: Vec<String> = without.iter().map(Family::to_string).collect();
        format!(
            "no Service of type LoadBalancer got an address of {} within {} s",
            without.join(" or "),
            limits.service.as_secs()
        )
    }))
}

/// Families of which there was no address.
async fn given(
    client: &Client,
    run: &str,
    confined: Option<&str>,
    families: &[Family],
    within: Duration,
) -> Result<Vec<Family>, Halt> {
    let labels = json!({ RUN_LABEL: run, CASE_LABEL: LABEL });
    let own = format!("p-{run}-addresses");
    let namespace = confined.unwrap_or(&own);
    if confined.is_none() {
        let object =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": own, "labels": labels } });
        create(client, Kind::Namespace, None, object).await?;
    }
    for family in families {
        let object = service(&name(run, *family), *family, &labels);
        create(client, Kind::Service, Some(namespace), object).await?;
    }
    let services = all(client, Kind::Service, Some(namespace));
    let mut without = families.to_vec();
    let began = Instant::now();
    loop {
        let mut still = Vec::new();
        for family in without {
            let name = name(run, family);
            let found = answered(|| services.get(&name)).await;
            let found = found.map_err(|error| refused(&format!("get Service {namespace}/{name}"), error))?;
            let found = serde_json::to_value(found).map_err(|error| Halt::Harness(error.to_string()))?;
            if balancers(&found, family).is_empty() {
                still.push(family);
            }
        }
        without = still;
        if without.is_empty() || began.elapsed() >= within {
            return Ok(without);
        }
        sleep(LOOK).await;
    }
}

/// Where the namespace stays, no other run's has its name.
fn name(run: &str, family: Family) -> String {
    format!("{run}-{family}").to_lowercase()
}

fn service(name: &str, family: Family, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "labels": labels },
        "spec": {
            "type": "LoadBalancer", "ipFamilyPolicy": "SingleStack", "ipFamilies": [family.to_string()],
            "ports": [{ "port": 7480, "protocol": "TCP" }],
        },
    })
}

async fn create(client: &Client, kind: Kind, namespace: Option<&str>, object: Value) -> Result<(), Halt> {
    let object: DynamicObject =
        serde_json::from_value(object).map_err(|error| Halt::Harness(error.to_string()))?;
    let params = PostParams::default();
    let created = all(client, kind, namespace).create(&params, &object).await;
    created.map(drop).map_err(|error| {
        refused(
            &format!("create a {kind:?} to see whether it gets an address"),
            error,
        )
    })
}
