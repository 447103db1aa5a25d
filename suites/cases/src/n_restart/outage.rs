//! Services whose only endpoint is another one from some time on, and who dials them: of rows about agents that do not
//! learn that.

use harness::{
    context::Context,
    destination::Destination,
    fence,
    frontend_kinds::{Kind, inside_and_outside},
    frontends::{self, Vantage},
    pods::Backend,
    probing,
    verdict::Halt,
    waiting::Within,
};

use super::listed::{Listed, TARGET};

const KINDS: [Kind; 2] = [Kind::ClusterIp, Kind::NodePort];

/// Services of one name in each family, and two backends.
pub(super) struct Swapped {
    backends: Vec<Backend>,
    services: Vec<Listed>,
}

impl Swapped {
    /// Creates them; all serve everywhere when this returns. `axis`: what they decide.
    pub(super) async fn stage(cx: &Context, names: (&str, &str)) -> Result<Self, Halt> {
        cx.phase(&format!("staging: Services of one of two backends, {}", names.1));
        let namespace = cx.namespace().await?;
        let pods = [format!("{}-1", names.0), format!("{}-2", names.0)];
        let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
        let backends = frontends::serving(cx, &namespace, &pods, &[TARGET], &[TARGET]).await?;
        let mut services = Vec::new();
        for family in cx.families() {
            services.push(Listed::create(cx, &namespace, names, family, &KINDS, &backends[..1]).await?);
        }
        let all = Self { backends, services };
        let within = Within::from_now(cx.limits().service);
        fence::pass(cx).await?;
        for (clients, targets) in all.dialled(cx, 0).await? {
            probing::control(cx, "all serve", &clients, &targets, within).await?;
        }
        Ok(all)
    }

    /// Lists the other backend, of this number, alone. Returns when the API has it.
    pub(super) async fn list(&self, cx: &Context, number: usize) -> Result<(), Halt> {
        for service in &self.services {
            service.list(cx, &self.backends[number..=number]).await?;
        }
        Ok(())
    }

    /// Witness: the first backend still serves, although another is listed, so that agents have not learned it.
    pub(super) async fn are_unchanged(&self, cx: &Context) -> Result<(), Halt> {
        for (clients, targets) in self.dialled(cx, 0).await? {
            let within = Within::from_now(cx.limits().endpoints);
            probing::witness(cx, "the former endpoint still serves", &clients, &targets, within).await?;
        }
        Ok(())
    }

    /// Who dials which frontend, all of which the backend of this number must serve alone: everything from inside, node
    /// ports from outside.
    pub(super) async fn dialled(&self, cx: &Context, number: usize) -> Result<Vec<Vantage>, Halt> {
        let [inside, outside] = self.frontends(cx, number).await?;
        Ok(frontends::vantages(cx, inside, outside))
    }

    /// What clients inside dial of these.
    pub(super) async fn inside(&self, cx: &Context, number: usize) -> Result<Vec<Destination>, Halt> {
        let [inside, _] = self.frontends(cx, number).await?;
        Ok(inside)
    }

    async fn frontends(&self, cx: &Context, number: usize) -> Result<[Vec<Destination>; 2], Halt> {
        let mut targets = Vec::new();
        for service in &self.services {
            targets.extend(service.serves(cx, &self.backends[number..=number]).await?);
        }
        Ok(inside_and_outside(&targets))
    }
}
