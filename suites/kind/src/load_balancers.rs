//! Load balancers: a controller that assigns addresses to Services of type LoadBalancer, and the routes of the
//! outside client's router to the nodes behind each address.
//!
//! ```text
//!  Services ─▶ Balancer ─▶ status, finalizer ─▶ agents
//!      └─────▶ route ─▶ follow ─▶ routes of the router: an address ─▶ its nodes, by turns of connections
//!                                 the rest of the range ─▶ a blackhole
//! ```
//!
//! They live in the process that holds the cluster's lock, so there is one instance. When it releases a kept cluster,
//! Services release their addresses; if it was killed, the next holder of the lock continues, or `plumbline heal`
//! releases them. On nodes and pods the agents translate the addresses; packets that they don't translate end at the
//! outside client, as those for ClusterIPs do.

use ipnet::IpNet;
use kube::Client;
use lab::{LabError, Nodes, Router, follow};
use lab_controllers::{Balancer, Routes, others, route, take_back};
use tokio::{
    sync::{Mutex, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    KindError, LIMITS, access::DebugClient, containers::Container, error::api_error,
    outside_route::OutsideRoute,
};

/// Addresses are assigned as long as this lives.
#[derive(Debug)]
pub(super) struct LoadBalancers {
    client: DebugClient,
    router: Router,
    wanted: watch::Receiver<Routes>,
    tasks: Mutex<JoinSet<()>>,
}

impl LoadBalancers {
    /// Starts the controller. `outside` belongs to a client that has just been started.
    pub(super) async fn start(
        client: Client,
        pool: Vec<IpNet>,
        nodes: &[Container],
        outside: &OutsideRoute,
    ) -> Result<Self, KindError> {
        let router = outside
            .route_ranges(&pool)
            .await
            .map_err(|error| unexpected(&error))?;
        let addresses = |node: &Container| (node.name.clone(), node.addresses.clone());
        let nodes: Nodes = nodes.iter().map(addresses).collect();
        // Never cancelled: the controllers end as tasks.
        let stop = CancellationToken::new();
        let (routes, wanted) = watch::channel(Routes::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(Balancer::new(client.clone(), pool.clone()).run(stop.clone()));
        tasks.spawn(route(client.clone(), routes, stop));
        tasks.spawn(follow(router.clone(), nodes, pool, wanted.clone()));
        Ok(Self {
            client: DebugClient(client),
            router,
            wanted,
            tasks: Mutex::new(tasks),
        })
    }

    /// Ends the controller: Services release their addresses, and the routes are removed.
    pub(super) async fn end(&self) -> Result<(), KindError> {
        self.tasks.lock().await.shutdown().await;
        let addresses: Vec<_> = self.wanted.borrow().keys().copied().collect();
        for address in addresses {
            self.router
                .spread(address, &[])
                .await
                .map_err(|error| unexpected(&error))?;
        }
        give_back(&self.client.0, None).await.map(drop)
    }
}

/// Releases addresses and finalizers of a dead controller, of the Services in one namespace or in all. Returns which,
/// as text.
///
/// # Errors
/// The API refuses it, or does not answer.
pub async fn give_back(client: &Client, namespace: Option<&str>) -> Result<Vec<String>, KindError> {
    let what = "take the addresses of Services of type LoadBalancer back";
    let taken = timeout(LIMITS.give_back, take_back(client, namespace)).await;
    let taken = taken
        .map_err(|_| KindError::Unexpected {
            what: what.to_owned(),
            why: format!("the API had not answered all of it within {:?}", LIMITS.give_back),
        })?
        .map_err(api_error(what))?;
    let words = |(namespace, name)| {
        format!(
            "the Service {namespace}/{name} had a load balancer of a run that is dead, and has none any more"
        )
    };
    Ok(taken.into_iter().map(words).collect())
}

/// Refuses a cluster where another controller assigns addresses.
pub(super) async fn expect_alone(client: &Client, cluster: &str) -> Result<(), KindError> {
    let found = timeout(LIMITS.request, others(client)).await;
    let found = found
        .map_err(|_| KindError::Unexpected {
            what: "list the Services".to_owned(),
            why: format!("the API had not answered within {:?}", LIMITS.request),
        })?
        .map_err(api_error("list the Services"))?;
    match found {
        None => Ok(()),
        Some(((namespace, name), addresses)) => Err(KindError::Balanced {
            name: cluster.to_owned(),
            service: format!("{namespace}/{name}"),
            addresses: addresses.join(", "),
        }),
    }
}

fn unexpected(error: &LabError) -> KindError {
    KindError::Unexpected {
        what: "route addresses of load balancers from the outside client".to_owned(),
        why: error.to_string(),
    }
}
