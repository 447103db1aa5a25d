//! Snapshots → events and views, as they change.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use tokio::sync::watch;

use super::{
    snapshot::Snapshot,
    view::{HostOptions, View},
    watch::watch as snapshots,
};
use crate::{
    feed::{EventSender, Feed},
    model::{Event, Host, Probe},
};

/// The control loop's end of a [`feed`].
#[derive(Debug)]
pub struct HostWatch {
    /// The name of this node's Node object.
    pub node: String,
    /// The machine as it is now; `None`: it has not been read yet.
    pub views: watch::Receiver<Option<Arc<View>>>,
    /// Takes the addresses of this node's Node object, preferred ones first; `None`: it is not known yet.
    pub node_addresses: watch::Sender<Option<Vec<IpAddr>>>,
}

/// A feed of this machine: [`Event::Host`] at once and whenever its addresses change, and a view whenever anything
/// changes. It reads the network namespace of the thread that first runs it.
pub fn feed(node: String, options: HostOptions, probe: Option<Probe>) -> (Feed, HostWatch) {
    let (publish, views) = watch::channel(None);
    let (node_addresses, of_node) = watch::channel(None);
    let feed = Feed::new(move |events| async move {
        let (sender, seen) = watch::channel(None);
        let publisher = Publisher {
            options,
            probe,
            publish,
            events,
        };
        tokio::join!(snapshots(sender), publisher.run(seen, of_node));
    });
    (
        feed,
        HostWatch {
            node,
            views,
            node_addresses,
        },
    )
}

struct Publisher {
    options: HostOptions,
    probe: Option<Probe>,
    publish: watch::Sender<Option<Arc<View>>>,
    events: EventSender,
}

impl Publisher {
    /// Runs until the queue of events is closed.
    async fn run(
        self,
        mut seen: watch::Receiver<Option<Snapshot>>,
        mut of_node: watch::Receiver<Option<Vec<IpAddr>>>,
    ) {
        let mut before: Option<Arc<View>> = None;
        loop {
            tokio::select! {
                () = self.events.closed() => return,
                changed = seen.changed() => if changed.is_err() { return },
                // Its sender ends with the control loop, which closes the queue of events, too.
                Ok(()) = of_node.changed() => {}
            }
            let view = {
                let snapshot = seen.borrow_and_update();
                let Some(snapshot) = snapshot.as_ref() else {
                    continue;
                };
                Arc::new(View::new(
                    snapshot,
                    &self.options,
                    of_node.borrow_and_update().as_deref(),
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
