//! Load balancers: a controller that gives Services of type LoadBalancer their addresses, and the routes to the nodes behind each
//! of the router that the client outside has.
//!
//! ```text
//!  Services ─▶ Balancer ─▶ status, finalizer ─▶ agents
//!      └─────▶ route ─▶ follow ─▶ routes of the router: an address ─▶ its nodes, by turns of connections
//!                                 the rest of the range ─▶ nowhere, and nobody is told
//! ```
//!
//! They live in the process that holds the cluster's lock, so that there is one of them. When that lets go of a cluster that
//! stays, Services give back what they have; where it was killed, the next that holds the lock goes on, or `plumbline heal`
//! takes it back. From nodes and pods an address leads where the agents say; what they do not translate ends at the outside
//! client, as it does for ClusterIPs.

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

use super::{KindError, LIMITS, containers::Container, error::api_error, places::DebugClient, way::Way};

/// They give addresses as long as this lives.
#[derive(Debug)]
pub(super) struct LoadBalancers {
    client: DebugClient,
    router: Router,
    wanted: watch::Receiver<Routes>,
    tasks: Mutex<JoinSet<()>>,
}

impl LoadBalancers {
    /// Starts them. `way` is that of a client that has been started anew.
    pub(super) async fn start(
        client: Client,
        pool: Vec<IpNet>,
        nodes: &[Container],
        way: &Way,
    ) -> Result<Self, KindError> {
        let router = way.lead(&pool).await.map_err(|error| unexpected(&error))?;
        let addresses = |node: &Container| (node.name.clone(), node.addresses.clone());
        let nodes: Nodes = nodes.iter().map(addresses).collect();
        // Nobody cancels them: they end as tasks do.
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

    /// Ends them: Services give their addresses back, and nothing leads there any more.
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

/// Takes back what a controller that is gone has given to Services of a namespace, or of all, and the finalizer that would keep
/// them. Returns whose, in words.
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

/// Refuses a cluster where somebody else gives addresses.
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
        what: "lead the outside client to load balancers".to_owned(),
        why: error.to_string(),
    }
}
