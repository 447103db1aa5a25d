//! The source of objects.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use ipnet::IpNet;
use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};
use lb_abi::SERVICE_RANGES;

use crate::{
    api_access::{ApiAccessFlags, ApiServers, StateAccess},
    endpoint_address::Range,
    feed::Feed,
    folder::Folder,
    model::Event,
    reflect,
    reports::Reports,
};

/// The source of objects.
#[derive(Debug, Args)]
pub(super) struct SourceFlags {
    /// How to reach the API server; without it: $KUBECONFIG, ~/.kube/config, then the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Take Services, EndpointSlices, Nodes and ServiceCIDRs from the files of this folder instead of an API server
    ///
    /// YAML and JSON as kubectl takes them: any number of objects in a file, files whose names end in .yaml, .yml or
    /// .json, directly in the folder. A change counts after a tenth of a second without another one. Other kinds of
    /// objects are ignored; nothing is written there. A file that can't be read keeps its last contents, and is in
    /// /readyz.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["kubeconfig", "api_servers"])]
    from: Option<PathBuf>,
    /// A range that cluster IPs are from; may be given up to four times
    ///
    /// An address there that no Service has is refused on the node, and not sent out by the default route: as by kube-proxy's
    /// mode nftables. Otherwise: those of the ServiceCIDR objects; where the API server has none (before 1.33), nothing is
    /// refused. Addresses of nodes and pods in such a range stay theirs.
    #[arg(long = "service-cidr", value_name = "RANGE", value_parser = service_cidr)]
    service_cidrs: Vec<Range>,
}

fn service_cidr(text: &str) -> Result<Range, String> {
    let net = text.parse::<IpNet>().ok().filter(|net| net.prefix_len() > 0);
    let range = net.and_then(|net| Range::new(net.addr(), net.prefix_len()));
    range.ok_or_else(|| format!("expected a range such as 10.96.0.0/12; found {text:?}"))
}

/// A source of objects.
pub enum Source {
    /// API servers.
    Api {
        /// Their addresses.
        servers: ApiServers,
        /// For watches.
        client: Client,
    },
    /// The files of a folder.
    Folder(Folder),
}

impl SourceFlags {
    /// The ranges that cluster IPs are from, if they are given.
    ///
    /// # Errors
    /// More are given than fit into the datapath.
    pub(super) fn service_ranges(&self) -> anyhow::Result<Option<Event>> {
        let ranges: BTreeSet<Range> = self.service_cidrs.iter().copied().collect();
        anyhow::ensure!(
            ranges.len() <= SERVICE_RANGES,
            "expected at most {SERVICE_RANGES} ranges by --service-cidr, found {}",
            ranges.len()
        );
        Ok((!ranges.is_empty()).then_some(Event::ServiceRanges(ranges)))
    }

    /// Reads the configuration, without a request.
    ///
    /// # Errors
    /// It is invalid.
    pub(super) async fn open(&self, own: &ApiAccessFlags, access: StateAccess) -> anyhow::Result<Source> {
        if let Some(path) = &self.from {
            let folder = Folder::open(path)
                .with_context(|| format!("failed to read the folder {} of --from", path.display()))?;
            return Ok(Source::Folder(folder));
        }
        let (config, servers) = match self.config().await {
            Ok(config) => {
                let servers = own.servers(&config, access).await?;
                (config, servers)
            }
            // A kubeconfig that was named and can't be used is an error, whatever else the pod has.
            Err(error) if self.kubeconfig.is_some() => return Err(error),
            Err(error) => without_variables(own, access).await?.ok_or(error)?,
        };
        let client = servers.client(&config)?;
        Ok(Source::Api { servers, client })
    }

    async fn config(&self) -> anyhow::Result<kube::Config> {
        let Some(path) = &self.kubeconfig else {
            return kube::Config::infer().await.context(
                "failed to find out how to reach the API server; name a --kubeconfig, or a folder by --from",
            );
        };
        let wrong = || format!("failed to use the kubeconfig {}", path.display());
        let kubeconfig = Kubeconfig::read_from(path).with_context(wrong)?;
        let options = KubeConfigOptions::default();
        kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .with_context(wrong)
    }
}

/// What a pod with a service account has that was made while the API lacked default/kubernetes: kubelet gives it no
/// KUBERNETES_SERVICE_HOST then (`getServiceEnvVarMap` in pkg/kubelet/kubelet_pods.go). `None`: no address of an API server is
/// known either, and one that kubelet starts later may be given the variables.
async fn without_variables(
    own: &ApiAccessFlags,
    access: StateAccess,
) -> anyhow::Result<Option<(kube::Config, ApiServers)>> {
    let Ok(config) = kube::Config::incluster_dns() else {
        return Ok(None);
    };
    let servers = own.servers(&config, access).await?;
    let known = servers.has_addresses();
    if known {
        tracing::warn!(
            host = %config.cluster_url,
            "the pod has no KUBERNETES_SERVICE_HOST: the API server must have a certificate for this host, and is tried at the \
             addresses of api-server and those remembered"
        );
    }
    Ok(known.then_some((config, servers)))
}

impl Source {
    /// Feeds of its objects. `service_cidrs`: whether the API's ServiceCIDRs are watched.
    pub(super) fn feeds(self, service_cidrs: bool, reports: &Reports) -> Vec<Feed> {
        match self {
            Self::Api { client, .. } => {
                let mut random = rand::rng();
                let mut feeds = reflect::feeds(&client, reports, &mut random);
                feeds.extend(service_cidrs.then(|| reflect::service_cidrs(&client, reports, &mut random)));
                feeds
            }
            Self::Folder(folder) => vec![folder.feed(reports)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(texts: &[&str]) -> anyhow::Result<Option<Event>> {
        let ranges = texts.iter().map(|text| service_cidr(text).expect("a range"));
        let flags = SourceFlags {
            kubeconfig: None,
            from: None,
            service_cidrs: ranges.collect(),
        };
        flags.service_ranges()
    }

    #[test]
    fn as_many_service_ranges_can_be_given_as_the_datapath_has_room_for() {
        const MOST: [&str; 4] = ["10.96.0.0/16", "10.97.0.0/16", "fd00:96::/112", "fd00:97::/112"];
        assert_eq!(ranges(&[]).expect("none"), None);
        let Some(Event::ServiceRanges(found)) = ranges(&MOST).expect("they fit") else {
            panic!("they are given")
        };
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), MOST);
        let error = ranges(&[&MOST[..], &["10.98.0.0/16"]].concat()).expect_err("one too many");
        assert_eq!(
            error.to_string(),
            "expected at most 4 ranges by --service-cidr, found 5"
        );
    }
}
