//! What chaos does, in one of the two clusters.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use cluster::Family;
use harness::{agents, verdict::Halt, waiting::has_lasted};

use super::{
    PlayError,
    objects::{cluster_ip, pod},
    side::Side,
};
use crate::{
    chaos::{
        calls::send,
        faults::lane,
        schedule::{Action, Namespace, SERVICES},
        shapes::Shapes,
        world::World,
    },
    churn,
    step::Backend,
};

impl Side {
    /// What chaos writes, with the same addresses and ports in both clusters. Makes its namespaces.
    pub(super) async fn shapes(&self) -> Result<Shapes, Halt> {
        let endpoint = |backend| pod(&self.pods, backend)?.endpoint(Family::IPv4, true);
        let namespaces = BTreeMap::from([
            (Namespace::First, self.cx.namespace_ending(0, "first").await?),
            (Namespace::Second, self.cx.namespace_ending(0, "second").await?),
            (Namespace::Prefixes, self.namespace.clone()),
        ]);
        Ok(Shapes {
            family: Family::IPv4,
            namespaces,
            cluster_ips: (0..SERVICES)
                .map(|service| (service, cluster_ip(churn::FIRST + service)))
                .collect(),
            node_ports: churn::NODE_PORTS.to_vec(),
            is_balanced: false,
            balancer: None,
            endpoints: Backend::ALL
                .into_iter()
                .map(endpoint)
                .collect::<Result<_, Halt>>()?,
        })
    }

    /// Plays a part of a schedule of chaos, before which the API has `world`. Returns when all faults are healed, and all writes are
    /// effective on every node.
    pub(super) async fn chaos(&mut self, world: &World, actions: &[Action]) -> Result<(), PlayError> {
        let began = Instant::now();
        let cx = &self.cx;
        futures::future::try_join3(
            lane(cx, actions, true, began),
            lane(cx, actions, false, began),
            self.writes(world.clone(), actions, began),
        )
        .await?;
        let mut faults = churn::faults(actions).peekable();
        if faults.peek().is_none() {
            return self.settle().await;
        }
        let has_ended_agents = faults.any(|kind| !kind.is_of_api());
        let since = Instant::now();
        // What watches back off for after a fault is longer than what a fence waits for.
        while let Err(error) = self.settle().await {
            let is_late = matches!(error, PlayError::Halt(Halt::Inconclusive(_)));
            if !is_late || since.elapsed() > self.cx.limits().heal {
                return Err(error);
            }
        }
        if has_ended_agents {
            self.agents = agents::all(&self.cx).await?;
        }
        Ok(())
    }

    async fn writes(&self, mut world: World, actions: &[Action], began: Instant) -> Result<(), Halt> {
        let Some(shapes) = &self.shapes else {
            return Err(Halt::Harness("nothing is staged".to_owned()));
        };
        for action in actions {
            let calls = world.calls(&action.does);
            if !calls.is_empty() {
                has_lasted(began, Duration::from_millis(action.at_ms.into())).await;
            }
            for call in calls {
                send(self.cx.objects(), shapes, &world, &call).await?;
                world = world.after(&call);
            }
        }
        Ok(())
    }
}
