//! ServiceCIDRs: the one that is always there, and others.

use serde_json::{Value, json};

use crate::server::TestServer;

const PATH: &str = "/apis/networking.k8s.io/v1/servicecidrs";

fn object(name: &str, cidrs: &Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": name},
        "spec": {"cidrs": cidrs},
    })
}

#[tokio::test]
async fn the_ranges_of_cluster_ips_are_an_object_from_the_start() {
    let server = TestServer::new().await;
    let (code, found) = server.raw("GET", &format!("{PATH}/kubernetes"), "", "").await;
    assert_eq!((code, &found["kind"]), (200, &json!("ServiceCIDR")));
    let address = server
        .raw("GET", "/api/v1/namespaces/default/services/kubernetes", "", "")
        .await
        .1;
    let address: std::net::IpAddr =
        serde_json::from_value(address["spec"]["clusterIP"].clone()).expect("an address");
    let cidrs: Vec<ipnet::IpNet> = serde_json::from_value(found["spec"]["cidrs"].clone()).expect("ranges");
    assert!(
        cidrs.iter().any(|cidr| cidr.contains(&address)),
        "{cidrs:?} {address}"
    );
    server.end().await;
}

#[tokio::test]
async fn a_range_of_each_family_is_accepted_and_a_second_one_may_come_later() {
    let server = TestServer::new().await;
    let name = format!("of-{}", server.namespace);
    let path = format!("{PATH}/{name}");
    let put = async |method: &str, path: &str, cidrs: Value| {
        let (code, answer) = server
            .raw(
                method,
                path,
                "application/json",
                &object(&name, &cidrs).to_string(),
            )
            .await;
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    for (cidrs, field) in [
        (json!([]), "spec.cidrs"),
        (json!(["nowhere"]), "spec.cidrs[0]"),
        (json!(["10.99.0.0/24", "10.99.1.0/24"]), "spec.cidrs"),
    ] {
        let (code, message) = put("POST", PATH, cidrs).await;
        assert!(code == 422 && message.contains(field), "{code} {message}");
    }
    assert_eq!(put("POST", PATH, json!(["10.99.0.0/24"])).await.0, 201);
    assert_eq!(
        put("PUT", &path, json!(["10.98.0.0/24"])).await.0,
        422,
        "it may not change"
    );
    assert_eq!(
        put("PUT", &path, json!(["10.99.0.0/24", "fd00:99::/112"]))
            .await
            .0,
        200
    );
    let (code, answer) = server.raw("DELETE", &path, "", "").await;
    assert_eq!(code, 200, "{answer}");
    server.end().await;
}
