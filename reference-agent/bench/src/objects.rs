//! Services and EndpointSlices as an API server sends them, one by one: none is kept.

use serde_json::{Value, json};

/// Endpoints of a slice that the EndpointSlice controller makes (`--max-endpoints-per-slice`).
pub(crate) const PER_SLICE: usize = 100;

/// The Service of a number: ClusterIP, one port.
pub(crate) fn service(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": format!("service-{number}"),
            "namespace": format!("namespace-{}", number % 100),
            "uid": format!("6f1c9a52-0000-4000-8000-{number:012x}"),
            "resourceVersion": (1000 + number).to_string(),
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "labels": {"app.kubernetes.io/name": format!("service-{number}"), "team": "payments"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": address(10 << 24 | 96 << 16, number),
            "clusterIPs": [address(10 << 24 | 96 << 16, number)],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None", "selector": {"app": format!("service-{number}")},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
        "status": {"loadBalancer": {}},
    })
}

/// A slice of a Service with these endpoints, each by the number of its address.
pub(crate) fn slice(service: usize, slice: usize, endpoints: &[usize]) -> Value {
    let endpoints: Vec<Value> = endpoints.iter().map(|&number| endpoint(number)).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("service-{service}-{slice}"),
            "namespace": format!("namespace-{}", service % 100),
            "uid": format!("7a1c9a52-0000-4000-8000-{:012x}", service * 1000 + slice),
            "resourceVersion": (1000 + service).to_string(),
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "labels": {
                "kubernetes.io/service-name": format!("service-{service}"),
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
}

fn endpoint(number: usize) -> Value {
    json!({
        "addresses": [address(11 << 24, number)],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "nodeName": format!("node-{}", number % 50),
        "targetRef": {"kind": "Pod", "namespace": "namespace", "name": format!("pod-{number}")},
    })
}

/// IPv4, from a network on.
fn address(network: u32, number: usize) -> String {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    std::net::Ipv4Addr::from_bits(network.wrapping_add(number + 1)).to_string()
}

#[cfg(test)]
mod tests {
    use reference_agent::decode;

    use super::*;

    #[test]
    fn what_is_measured_is_read_without_a_defect() {
        let service = decode::service(&service(49_999)).expect("a Service");
        assert_eq!(service.defects, []);
        let slice = decode::slice(&slice(49_999, 0, &[49_999])).expect("an EndpointSlice");
        assert_eq!(slice.defects, []);
        assert_eq!(slice.object.endpoints.len(), 1);
    }
}
