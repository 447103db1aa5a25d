//! `lb-status-followed`: an address that leaves the status of a Service, is replaced there by another one, or gets
//! `ipMode: Proxy`, is not captured from the Service propagation limit on: pods and hosts reach the machine outside that
//! has the address. Once the status has it again as a VIP, they reach the Service's backend again.
//!
//! A server outside with an identity of its own has all the addresses. Windows have source ports that their clients have
//! not dialled from before: whether flows of datagrams outlive a frontend is a claim of its own.
use std::{net::IpAddr, time::Duration};

use cluster::{Capability, Family};
use harness::{
    background::{Background, shares},
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends},
    host_servers::{self, Servers},
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::{Value, json};

use super::vips;
use crate::source_ports;

pub(crate) const CASE: Case = Case {
    id: "lb-status-followed",
    area: super::AREA,
    claims: &["lb-status-followed"],
    sentence: "a load balancer address is captured as long as the Service's status lists it as a VIP, and no longer",
    tier: Tier::Core,
    features: &["lb-ipmode"],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Outside, Capability::SecondNetwork],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("lb_status_followed.yaml"),
    longest: Duration::from_secs(400),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Port of the Services and of the server outside.
const PORT: u16 = 7480;
const TARGET: u16 = 8080;
const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];
/// What becomes of an address, and the status then; last numbers of the addresses.
const CHANGES: [(&str, &str, [u8; 2]); 3] = [
    ("removed", "", [203, 0]),
    ("replaced", "VIP", [204, 205]),
    ("ipMode Proxy", "Proxy", [206, 0]),
];
/// A Service, and addresses that its status has and that it gets instead.
struct Followed {
    family: Family,
    change: &'static str,
    mode: &'static str,
    made: Frontends,
    first: IpAddr,
    second: Option<IpAddr>,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with addresses that a machine outside has");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b"], &[TARGET], &[TARGET]).await?;
    let servers = Servers::outside(cx, &namespace, PORT).await?;
    let outside = cx.clients().outside();
    let outside = outside.ok_or_else(|| Halt::Harness("no client outside".to_owned()))?;
    let mut all = Vec::new();
    for family in cx.families() {
        // It has no route to pods of its own.
        for client in cx.clients().in_pods() {
            let address = host_servers::address_of(cx, &client, family).await?;
            vips::route(cx, family, &[address], &client.node, None).await?;
        }
        for change in CHANGES {
            all.push(stage(cx, &namespace, family, change, &outside, &backends).await?);
        }
    }
    let addresses = |which: fn(&Followed) -> Vec<(IpAddr, bool)>| -> Vec<Destination> {
        let each = all.iter().flat_map(|one| {
            let at = which(one).into_iter();
            at.flat_map(|(address, is_captured)| one.targets(address, is_captured, &servers, &backends))
        });
        each.collect()
    };
    let listed = addresses(Followed::as_listed);
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    probing::control(
        cx,
        "listed addresses are captured, others are not",
        cx.clients(),
        &listed,
        within,
    )
    .await?;
    let steps = [addresses(Followed::as_changed), listed];
    for (at, (targets, ports)) in steps.iter().zip(shares(source_ports::LB_STATUS, 2)).enumerate() {
        cx.phase(
            [
                "addresses leave the status, or are a proxy's",
                "addresses are listed as before",
            ][at],
        );
        for one in &all {
            one.write(cx, at == 0).await?;
        }
        let within = Within::from_now(cx.limits().service);
        fence::pass(cx).await?;

        cx.phase("verdict: listed VIPs lead to the backend, all others to the machine outside");
        let connections: Vec<Destination> = targets
            .iter()
            .filter(|target| target.transport == Transport::Tcp)
            .cloned()
            .collect();
        probing::judge_briefly(cx, cx.clients(), &connections, within).await?;
        let clients: Vec<_> = cx
            .clients()
            .iter()
            .map(|client| (client.clone(), ports))
            .collect();
        let window = Background::start_from(cx, &clients, targets, cx.limits().hold).await?;
        window.hold(cx).await?;
    }
    Ok(())
}

async fn stage(
    cx: &Context,
    namespace: &str,
    family: Family,
    (change, mode, [first, second]): (&'static str, &'static str, [u8; 2]),
    outside: &Client,
    backends: &[Backend],
) -> Result<Followed, Halt> {
    let service = format!("f{first}-{family}").to_lowercase();
    let values =
        json!({ "namespace": namespace, "service": service, "endpoints": endpoints(backends, family)? });
    let mut second_address = None;
    if second != 0 {
        second_address = Some(vips::own(cx, outside, family, second).await?);
    }
    let followed = Followed {
        family,
        change,
        mode,
        made: Frontends::create(cx, family, values).await?,
        first: vips::own(cx, outside, family, first).await?,
        second: second_address,
    };
    followed.write(cx, false).await?;
    Ok(followed)
}

impl Followed {
    /// Writes the status as it is first, or changed.
    async fn write(&self, cx: &Context, is_changed: bool) -> Result<(), Halt> {
        let listed = |address: IpAddr, mode: &str| json!([{ "ip": address, "ipMode": mode }]);
        let ingress = match (is_changed, self.mode) {
            (false, _) => listed(self.first, "VIP"),
            (true, "") => Value::Null,
            (true, mode) => listed(self.second.unwrap_or(self.first), mode),
        };
        let status = json!({ "loadBalancer": { "ingress": ingress } });
        cx.objects().patch_status(&self.made.service, status).await?;
        Ok(())
    }

    /// Its addresses, and whether each is captured, with the first status.
    fn as_listed(&self) -> Vec<(IpAddr, bool)> {
        let second = self.second.map(|second| (second, false));
        [(self.first, true)].into_iter().chain(second).collect()
    }

    /// The same, with the changed one.
    fn as_changed(&self) -> Vec<(IpAddr, bool)> {
        let second = self.second.map(|second| (second, true));
        [(self.first, false)].into_iter().chain(second).collect()
    }

    fn targets(
        &self,
        address: IpAddr,
        is_captured: bool,
        servers: &Servers,
        backends: &[Backend],
    ) -> Vec<Destination> {
        let axis = format!("{}, {}", self.family, self.change);
        let target = |transport| {
            if !is_captured {
                return servers.outside_at(&axis, transport, address);
            }
            let by = identities(backends, transport, TARGET);
            self.made.at(&axis, "lb", transport, (address, PORT).into(), &by)
        };
        TRANSPORTS.map(target).to_vec()
    }
}
