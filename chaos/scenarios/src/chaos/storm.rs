//! Up to a thousand changes of other Services in a second: load for whatever follows the API.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use cluster::Family;
use futures::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use harness::{context::Context, names::Key, objects::MANAGER, verdict::Halt, waiting::has_lasted};
use serde_json::{Value, json};

use super::shapes::PORT;

/// Services whose slices change: few enough to come and go within a second or two.
const SERVICES: u32 = 50;
/// Changes in a second, at most.
const RATE: u32 = 1000;
/// Requests that are under way at once, at most: an API server that takes longer gets fewer changes, and the history says how many.
const AT_ONCE: u32 = 64;
/// Endpoints of each slice, of which another one is missing after each change.
const ENDPOINTS: u32 = 4;

/// Makes Services of no client, changes their slices for a while, and deletes them. Returns how many changes there were, and in which
/// time.
///
/// # Errors
/// The API refuses something.
pub(super) async fn storm(cx: &Context, lasts: Duration) -> Result<(u32, Duration), Halt> {
    let namespace = cx.namespace().await?;
    let families = cx.families();
    let all: Vec<(Family, Key)> = stream::iter(0..SERVICES)
        .map(|number| {
            let family = families[number as usize % families.len()];
            create(cx, &namespace, number, family)
        })
        .buffered(AT_ONCE as usize)
        .try_collect()
        .await?;
    let (began, next) = (Instant::now(), AtomicU32::new(0));
    let changes = || async {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            has_lasted(began, Duration::from_secs(1) * number / RATE).await;
            if began.elapsed() >= lasts {
                return Ok::<_, Halt>(());
            }
            let (family, slice) = &all[number as usize % all.len()];
            let endpoints = endpoints(*family, number / SERVICES);
            cx.objects()
                .patch(slice, json!({ "endpoints": endpoints }))
                .await?;
        }
    };
    try_join_all((0..AT_ONCE).map(|_| changes())).await?;
    let took = began.elapsed();
    // Each of those that stopped had taken a number.
    let changed = next.into_inner().saturating_sub(AT_ONCE);
    let delete = |(_, slice): &(Family, Key)| {
        let (slice, service) = (slice.clone(), Key::service(&namespace, &slice.name));
        async move {
            cx.objects().delete(&slice).await?;
            cx.objects().delete(&service).await.map(drop)
        }
    };
    stream::iter(all.iter().map(delete))
        .buffered(AT_ONCE as usize)
        .try_collect::<Vec<()>>()
        .await?;
    Ok((changed, took))
}

/// Creates a Service, and a slice of its name.
async fn create(cx: &Context, namespace: &str, number: u32, family: Family) -> Result<(Family, Key), Halt> {
    let name = format!("storm{number:02}");
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "ipFamilies": [family.to_string()], "ipFamilyPolicy": "SingleStack",
            "ports": [{ "name": "tcp", "protocol": "TCP", "port": PORT }],
        },
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family.to_string(),
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": {
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": MANAGER,
            },
        },
        "endpoints": endpoints(family, 0),
        "ports": [{ "name": "tcp", "protocol": "TCP", "port": PORT }],
    });
    cx.objects().create(&service).await?;
    cx.objects().create(&slice).await?;
    Ok((family, Key::slice(namespace, &name)))
}

/// Endpoints at addresses for documentation (RFC 5737, RFC 3849), which no machine has: all but one.
fn endpoints(family: Family, missing: u32) -> Value {
    let address = |number: u32| -> IpAddr {
        let last = u8::try_from(number + 1).unwrap_or(u8::MAX);
        match family {
            Family::IPv4 => [192, 0, 2, last].into(),
            Family::IPv6 => [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)].into(),
        }
    };
    (0..ENDPOINTS)
        .filter(|number| *number != missing % ENDPOINTS)
        .map(|number| json!({ "addresses": [address(number)], "conditions": { "ready": true } }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_a_slice_is_one() {
        for family in [Family::IPv4, Family::IPv6] {
            let all: Vec<Value> = (0..=ENDPOINTS)
                .map(|missing| endpoints(family, missing))
                .collect();
            assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
            assert_eq!(all[0], all[ENDPOINTS as usize]);
            assert_eq!(all[0].as_array().map(Vec::len), Some(ENDPOINTS as usize - 1));
        }
    }
}
