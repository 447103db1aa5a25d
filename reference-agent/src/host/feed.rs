//! Snapshots → events and devices, as they change.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use tokio::sync::watch;

use super::{
    snapshot::Snapshot,
    view::{HostOptions, View},
    watch::watch as snapshots,
};
use crate::{
    agent::{EventSender, Feed},
    model::{Event, Host, Probe},
    pod_network::Plan,
};

/// The other end of a [`feed`]: what the control loop and the hooks have of it.
#[derive(Debug)]
pub struct HostWatch {
    /// The name of this node's Node object.
    pub node: String,
    /// The machine as it is now; `None`: it has not been seen yet.
    pub views: watch::Receiver<Option<Arc<View>>>,
    /// Takes the addresses of this node's Node object, those to be preferred first; `None`: it is not known yet.
    pub internal: watch::Sender<Option<Vec<IpAddr>>>,
    /// Takes what the pods' network consists of; `None`: it is not this agent's.
    pub pod_network: Option<watch::Sender<Option<Arc<Plan>>>>,
}

/// Tells of this machine: [`Event::Host`] at once and whenever its addresses change, views whenever anything does.
/// Of the network namespace of the thread that first runs it.
pub fn feed(node: String, options: HostOptions, probe: Option<Probe>) -> (Feed, HostWatch) {
    let (publish, views) = watch::channel(None);
    let (internal, told) = watch::channel(None);
    let feed = Feed::new(move |events| async move {
        let (sender, seen) = watch::channel(None);
        let telling = Telling {
            options,
            probe,
            publish,
            events,
        };
        tokio::join!(snapshots(sender), telling.run(seen, told));
    });
    (
        feed,
        HostWatch {
            node,
            views,
            internal,
            pod_network: None,
        },
    )
}

struct Telling {
    options: HostOptions,
    probe: Option<Probe>,
    publish: watch::Sender<Option<Arc<View>>>,
    events: EventSender,
}

impl Telling {
    /// Until nobody listens to events.
    async fn run(
        self,
        mut seen: watch::Receiver<Option<Snapshot>>,
        mut told: watch::Receiver<Option<Vec<IpAddr>>>,
    ) {
        let mut before: Option<Arc<View>> = None;
        loop {
            tokio::select! {
                () = self.events.closed() => return,
                changed = seen.changed() => if changed.is_err() { return },
                // Without a control loop there are no events either.
                Ok(()) = told.changed() => {}
            }
            let view = {
                let snapshot = seen.borrow_and_update();
                let Some(snapshot) = snapshot.as_ref() else {
                    continue;
                };
                Arc::new(View::new(
                    snapshot,
                    &self.options,
                    told.borrow_and_update().as_deref(),
                ))
            };
            if before.as_ref() == Some(&view) {
                continue;
            }
            self.log(before.as_deref(), &view);
            self.publish.send_replace(Some(view.clone()));
            let addresses = before.as_ref().map(|view| &view.node_ports);
            if addresses != Some(&view.node_ports) {
                let host = Host {
                    addresses: view.node_ports.clone(),
                    probe: self.probe,
                };
                if self.events.send(Event::Host(host)).await.is_err() {
                    return;
                }
            }
            before = Some(view);
        }
    }

    fn log(&self, before: Option<&View>, view: &View) {
        let View {
            addresses,
            v4,
            v6,
            unserved,
            ..
        } = view;
        if before.map(|view| (&view.addresses, view.v4, view.v6)) != Some((addresses, *v4, *v6)) {
            tracing::info!(?addresses, ?v4, ?v6, "addresses of this host");
        }
        let known = before.map_or_else(BTreeMap::new, |view| view.unserved.clone());
        for (index, device) in unserved.iter().filter(|(index, _)| !known.contains_key(*index)) {
            tracing::warn!(
                device,
                index,
                "packets of this device have no Ethernet header: Services are not served to those behind it"
            );
        }
    }
}
