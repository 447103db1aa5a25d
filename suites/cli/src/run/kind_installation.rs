//! A new kind cluster on which a target is installed by the steps of its file, as its users do by hand: `plumbline
//! targets kind`, `kind create`, the images, `plumbline targets install`. The run then uses it like a cluster that is
//! there.

use std::{
    collections::BTreeSet,
    env,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use cluster::{
    image::PROBE,
    target::{Cni, Installation, Step},
};
use existing::{Connection, Options, PodOptions, Tested, Tier};
use kind::{KindError, PlainCluster};
use lab::IpFamilies;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{process::Command, time::sleep};
use tokio_util::sync::CancellationToken;

use super::seconds;
use crate::{
    cluster::NAMESPACE,
    plural::counted,
    targets::{self, KindNodes},
    terminal,
};

/// Shown bytes of the end of a failed step's output.
const SHOWN: usize = 1500;

/// Shown pods that do not run.
const MOST_PODS: usize = 5;

/// Interval between looks at images while a target is installed.
const LOOK: Duration = Duration::from_secs(10);

/// Looks in a row at which images could not be pulled, before the installation has failed: a registry may be away for a
/// moment, and the agents are awaited for ten minutes.
const UNPULLED_LOOKS: u32 = 6;

/// Prints the reason why each container waits, and its image.
const WAITING: &str = "--output=jsonpath={range .items[*].status['containerStatuses','initContainerStatuses'][*]}\
                       {.state.waiting.reason}{\" \"}{.image}{\"\\n\"}{end}";

/// Limit until all nodes are Ready, after the agents are.
const NODES_READY: &str = "300s";

/// What is made, and how.
#[derive(Debug)]
pub(super) struct Plan {
    /// Name of the target, or path of its file.
    target: String,
    installation: Installation,
    tested: Tested,
    nodes: KindNodes,
    /// Image of the nodes; kind's default without one.
    image: Option<String>,
    /// Images of this host's Docker that nodes get.
    images: Vec<String>,
    /// Where the kubeconfig of a cluster that stays goes.
    kubeconfig: PathBuf,
    keep: bool,
}

/// Settings that the command line gives.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) tested: Tested,
    pub(super) nodes: KindNodes,
    pub(super) image: Option<String>,
    pub(super) load: Vec<String>,
    pub(super) kubeconfig: PathBuf,
    pub(super) keep: bool,
}

impl Plan {
    /// # Errors
    /// There is no such target; its file does not say how it is installed, or needs other families.
    pub(super) fn new(target: &str, given: Given) -> anyhow::Result<Self> {
        let installation = targets::installation(target)?;
        if let Some(subnet) = installation.kind.pod_subnet
            && subnet.addr().is_ipv4()
            && given.nodes.families == IpFamilies::Ipv6
        {
            bail!(
                "the file of the target {target} names pod-subnet {subnet}, and --ipv6 needs one of IPv6: leave --ipv6 out, or name \
                 another in a copy (`plumbline targets show`)"
            );
        }
        let Given {
            tested,
            nodes,
            image,
            load,
            kubeconfig,
            keep,
        } = given;
        Ok(Self {
            target: target.to_owned(),
            images: load,
            installation,
            tested,
            nodes,
            image,
            kubeconfig,
            keep,
        })
    }

    /// Name of the target.
    pub(super) fn target(&self) -> &str {
        &self.target
    }

    /// Name of the cluster.
    pub(super) fn name() -> String {
        format!("plumbline-{}", std::process::id())
    }

    /// Names of the containers: the nodes.
    pub(super) fn containers(&self) -> Vec<String> {
        let name = Self::name();
        let workers = (1..self.nodes.count).map(|number| match number {
            1 => format!("{name}-worker"),
            _ => format!("{name}-worker{number}"),
        });
        std::iter::once(format!("{name}-control-plane"))
            .chain(workers)
            .collect()
    }

    /// The steps of the target's file, a line each.
    pub(super) fn steps(&self) -> Vec<String> {
        let api = PlainCluster::api(&Self::name());
        let line = |step: &Step| match step.filled(&api) {
            Step::Run(argv) => shlex::try_join(argv.iter().map(String::as_str)).unwrap_or_default(),
            Step::Apply(manifests) => {
                let objects = objects(&manifests).len();
                format!("kubectl apply, {}", counted(objects, "object", "objects"))
            }
        };
        let steps: Vec<String> = self.installation.install.iter().map(line).collect();
        if steps.is_empty() {
            return vec!["none, as it comes with the cluster".to_owned()];
        }
        steps
    }

    /// The programs that the steps call.
    fn programs(&self) -> BTreeSet<&str> {
        let steps = self.installation.install.iter();
        let called = steps.filter_map(|step| match step {
            Step::Run(argv) => argv.first().map(String::as_str),
            Step::Apply(_) => None,
        });
        called.chain(["kubectl"]).collect()
    }

    /// What is installed, as text.
    fn what(&self) -> String {
        let version = self.installation.version.as_deref();
        version.map_or_else(
            || self.target.clone(),
            |version| format!("{} {version}", self.target),
        )
    }

    /// Makes the cluster, and prints each step with its duration.
    ///
    /// # Errors
    /// The step that failed, and why. The cluster is removed, unless it is to be kept.
    pub(super) async fn up(&self) -> anyhow::Result<Installed> {
        let missing: Vec<&str> = self
            .programs()
            .into_iter()
            .filter(|name| !is_on_path(name))
            .collect();
        ensure!(
            missing.is_empty(),
            "the steps that install {} call {}, not on the PATH: install what is missing, or name a cluster where the target is installed: `plumbline run \
             --kubeconfig FILE --target {}`",
            self.target,
            missing.join(" and "),
            self.target
        );
        let mut since = Instant::now();
        let mut done = |what: &str| {
            terminal::step(&format!("{what}: {}", seconds(since.elapsed())));
            since = Instant::now();
        };
        let configuration = targets::kind(&self.installation, self.nodes);
        let name = Self::name();
        let cluster = PlainCluster::create(&name, &configuration, self.image.as_deref()).await;
        let cluster = cluster.map_err(|error| match error {
            KindError::Command { .. } => anyhow::Error::new(error).context(self.not_made()),
            other => other.into(),
        })?;
        done("cluster made");
        let filled = self.fill(&cluster, &mut done).await;
        match filled {
            Ok(probe) => Ok(Installed { cluster, probe }),
            Err(error) if self.keep => bail!("{error:#}\n{}", self.left(cluster, None)?),
            Err(error) => {
                cluster.remove().await?;
                bail!(
                    "{error:#}\nThe cluster is removed again, and no case has run; --keep leaves it to look at"
                )
            }
        }
    }

    /// Loads the images and installs the target; returns the name of the image of clients and backends.
    async fn fill(&self, cluster: &PlainCluster, done: &mut impl FnMut(&str)) -> anyhow::Result<String> {
        let probe = cluster.load_probe().await?;
        done("image of clients and backends loaded");
        for image in self.of_docker(cluster).await? {
            cluster.load_from_docker(&image).await?;
            done(&format!("image {image} loaded from Docker"));
        }
        let script = targets::install(
            &self.target,
            &self.installation,
            &PlainCluster::api(cluster.name()),
        )?;
        let shell = ["sh", "-c", &script];
        let installed = tokio::select! {
            installed = self.call(cluster, &shell) => installed?,
            images = self.unpulled(cluster) => bail!(
                "failed to install {}: nodes can't pull {}, for {}: expected them in their registries, or --load IMAGE for images of \
                 this host's Docker",
                self.target,
                images.into_iter().collect::<Vec<_>>().join(", "),
                seconds(LOOK * UNPULLED_LOOKS)
            ),
        };
        if let Err(failure) = installed {
            bail!("{}", self.not_installed(cluster, &failure).await?);
        }
        done(&format!("{} installed, its agents ready", self.what()));
        let timeout = format!("--timeout={NODES_READY}");
        let wait = [
            "kubectl",
            "wait",
            "--for=condition=Ready",
            "nodes",
            "--all",
            &timeout,
        ];
        if let Err(failure) = self.call(cluster, &wait).await? {
            let cause = if self.installation.kind.cni == Cni::None {
                "they have no CNI plugin but the target"
            } else {
                "their CNI plugin is kind's own"
            };
            bail!(
                "expected all nodes Ready {NODES_READY} after the agents of {}, as {cause}; found: {}",
                self.target,
                failure.end()
            );
        }
        done("nodes ready");
        Ok(probe)
    }

    /// Returns images that nodes could not pull at several looks in a row.
    async fn unpulled(&self, cluster: &PlainCluster) -> BTreeSet<String> {
        let mut looks = 0;
        loop {
            sleep(LOOK).await;
            let pods = ["kubectl", "get", "pods", "--all-namespaces", WAITING];
            // The API may be away for a moment.
            let pods = self.call(cluster, &pods).await;
            let images = pods.ok().and_then(Result::ok).map(|text| unpulled_images(&text));
            let images = images.unwrap_or_default();
            looks = if images.is_empty() { 0 } else { looks + 1 };
            if looks >= UNPULLED_LOOKS {
                return images;
            }
        }
    }

    /// Images that this host's Docker has, and that nodes would otherwise pull: those of `--load`, and those that
    /// manifests of the target's file name.
    async fn of_docker(&self, cluster: &PlainCluster) -> anyhow::Result<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        for image in &self.images {
            ensure!(
                cluster.is_in_docker(image).await,
                "--load {image}: this host's Docker has no such image: `docker image ls` shows all, `docker build --tag {image} …` \
                 makes it"
            );
            all.insert(image.clone());
        }
        for image in named_images(&self.installation.install) {
            if cluster.is_in_docker(&image).await {
                all.insert(image);
            }
        }
        Ok(all)
    }

    /// Runs a program with the cluster's kubeconfig; `Err` inside, if it fails.
    async fn call(&self, cluster: &PlainCluster, argv: &[&str]) -> anyhow::Result<Result<String, Failure>> {
        let (program, arguments) = argv.split_first().context("expected a program")?;
        let child = Command::new(program)
            .args(arguments)
            .env("KUBECONFIG", cluster.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C reaches only this process, which removes the cluster.
            .process_group(0)
            .spawn()
            .with_context(|| format!("failed to start {program}"))?;
        let mut group = ProcessGroup(child.id());
        let output = child.wait_with_output().await;
        group.0 = None;
        let output = output.with_context(|| format!("failed to wait for {program}"))?;
        if output.status.success() {
            return Ok(Ok(String::from_utf8_lossy(&output.stdout).into_owned()));
        }
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok(Err(Failure(text.concat())))
    }

    /// The step that failed, what it printed, and the pods that do not run.
    async fn not_installed(&self, cluster: &PlainCluster, failure: &Failure) -> anyhow::Result<String> {
        // Before the agents are waited for, the pods of a new cluster have just begun.
        let pods = if failure
            .step()
            .is_some_and(|step| step.starts_with("kubectl rollout"))
        {
            self.pods(cluster).await?
        } else {
            Vec::new()
        };
        let mut text = format!("failed to install {} by the steps of its file: ", self.target);
        if let Some(step) = failure.step() {
            text += &format!("`{step}` did not succeed. ");
        }
        text += &format!("The end of its output:\n{}", failure.end());
        if !pods.is_empty() {
            text += &format!("\nPods that do not run:\n{}", pods.join("\n"));
        }
        Ok(text)
    }

    /// Pods that do not run, as kubectl shows them.
    async fn pods(&self, cluster: &PlainCluster) -> anyhow::Result<Vec<String>> {
        let pods = ["kubectl", "get", "pods", "--all-namespaces", "--no-headers"];
        let pods = self.call(cluster, &pods).await?.unwrap_or_default();
        let stopped = pods.lines().filter(|line| !is_running(line)).take(MOST_PODS);
        Ok(stopped.map(str::to_owned).collect())
    }

    fn not_made(&self) -> String {
        match &self.image {
            Some(image) => format!(
                "failed to make a cluster for {}; expected the image {image} in Docker or its registry (--kubernetes VERSION \
                 chooses another; https://github.com/kubernetes-sigs/kind/releases lists them)",
                self.target
            ),
            None => format!("failed to make a cluster for {}", self.target),
        }
    }

    /// Leaves the cluster; returns how to use and remove it. With the image of clients and backends, a run can use it.
    fn left(&self, cluster: PlainCluster, probe: Option<&str>) -> anyhow::Result<String> {
        let name = cluster.name().to_owned();
        cluster.leave(&self.kubeconfig)?;
        let file = terminal::path(&self.kubeconfig);
        let used = match probe {
            Some(probe) => format!(
                "`plumbline run --kubeconfig {file} --tier node --image {probe} --target {}` uses it",
                self.target
            ),
            None => format!("`kubectl --kubeconfig {file} get pods --all-namespaces` shows what it has"),
        };
        Ok(format!(
            "the kind cluster {name} stays up: {used}, `kind delete cluster --name {name}` removes it"
        ))
    }

    /// Removes the cluster, or prints how to use it if it stays.
    ///
    /// # Errors
    /// It could not be removed.
    pub(super) async fn close(&self, installed: Installed) -> anyhow::Result<()> {
        if self.keep {
            terminal::message(&self.left(installed.cluster, Some(&installed.probe))?);
            return Ok(());
        }
        let began = Instant::now();
        let name = installed.cluster.name().to_owned();
        let removed = installed.cluster.remove().await;
        removed.with_context(|| {
            format!(
                "the verdicts stand, but the kind cluster {name} could not be removed: `plumbline cleanup --kind {name}`"
            )
        })?;
        terminal::step(&format!("cluster removed: {}", seconds(began.elapsed())));
        Ok(())
    }

    /// Options of a run in the cluster.
    pub(super) fn options(&self, installed: &Installed, run: &str, plumbline: PathBuf) -> Options {
        Options {
            provider: "kind".to_owned(),
            tested: self.tested.clone(),
            connection: Connection {
                kubeconfig: Some(installed.cluster.kubeconfig()),
                context: None,
            },
            tier: Tier::Node,
            image: installed.probe.clone(),
            program: PROBE.program.to_owned(),
            namespace: NAMESPACE.to_owned(),
            run: run.to_owned(),
            plumbline,
            pods: PodOptions::default(),
        }
    }
}

/// A cluster with its target.
#[derive(Debug)]
pub(super) struct Installed {
    cluster: PlainCluster,
    /// The image of clients and backends.
    probe: String,
}

/// Makes the cluster; `None` if the run is interrupted meanwhile, after the cluster is removed.
///
/// # Errors
/// As for [`Plan::up`].
pub(super) async fn up(plan: &Plan, interrupted: &CancellationToken) -> anyhow::Result<Option<Installed>> {
    tokio::select! {
        installed = plan.up() => installed.map(Some),
        () = interrupted.cancelled() => Ok(None),
    }
}

/// A program and those that it has started, which end with the value; `None` after its end.
struct ProcessGroup(Option<u32>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(id) = self.0.and_then(|id| i32::try_from(id).ok()) {
            // It may have just ended.
            let _ = killpg(Pid::from_raw(id), Signal::SIGTERM);
        }
    }
}

/// Output of a failed program.
struct Failure(String);

impl Failure {
    /// The last command that the shell has shown before it ran it.
    fn step(&self) -> Option<&str> {
        self.0
            .lines()
            .filter_map(|line| line.strip_prefix("+ "))
            .next_back()
    }

    fn end(&self) -> &str {
        let text = self.0.trim();
        let from = text.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
        &text[from..]
    }
}

/// Images of containers that wait for them, in the output of [`WAITING`].
fn unpulled_images(text: &str) -> BTreeSet<String> {
    let waits = |line: &str| {
        let (reason, image) = line.split_once(' ')?;
        let is_for_image = reason.contains("ImagePull") || reason.contains("ImageNeverPull");
        is_for_image.then(|| image.to_owned())
    };
    text.lines().filter_map(waits).collect()
}

/// Whether a line of `kubectl get pods` is of a pod that runs, or has run to its end.
fn is_running(line: &str) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    match fields.as_slice() {
        [_, _, _, "Completed", ..] => true,
        [_, _, ready, "Running", ..] => ready.split_once('/').is_some_and(|(some, all)| some == all),
        _ => false,
    }
}

/// Images of the containers in manifests.
fn named_images(steps: &[Step]) -> BTreeSet<String> {
    let mut images = BTreeSet::new();
    for step in steps {
        if let Step::Apply(manifests) = step {
            // Target files are checked when they are read: all of it is YAML.
            let objects: Vec<serde_json::Value> = serde_saphyr::from_multiple(manifests).unwrap_or_default();
            objects
                .iter()
                .for_each(|object| collect_images(object, &mut images));
        }
    }
    images
}

/// The objects of manifests. Target files are checked when they are read, so all of it is YAML.
fn objects(manifests: &str) -> Vec<serde_json::Value> {
    serde_saphyr::from_multiple(manifests).unwrap_or_default()
}

fn collect_images(value: &serde_json::Value, images: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match value
                    .as_array()
                    .filter(|_| name == "containers" || name == "initContainers")
                {
                    Some(all) => {
                        let named = all.iter().filter_map(|one| one.get("image")?.as_str());
                        images.extend(named.map(str::to_owned));
                    }
                    None => collect_images(value, images),
                }
            }
        }
        serde_json::Value::Array(all) => all.iter().for_each(|one| collect_images(one, images)),
        _ => {}
    }
}

fn is_on_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(target: &str, families: IpFamilies) -> anyhow::Result<Plan> {
        let given = Given {
            tested: Tested::default(),
            nodes: KindNodes { count: 3, families },
            image: None,
            load: Vec::new(),
            kubeconfig: "out/kubeconfig".into(),
            keep: false,
        };
        Plan::new(target, given)
    }

    #[test]
    fn every_target_with_a_part_cluster_has_a_plan_with_the_programs_of_its_steps() {
        for name in cluster::target::Target::names() {
            let plan = plan(name, IpFamilies::Ipv4).unwrap();
            assert!(plan.programs().contains("kubectl"), "{name}");
            assert_eq!(plan.containers().len(), 3, "{name}");
        }
        let cilium = plan("cilium", IpFamilies::Ipv4).unwrap();
        assert!(cilium.programs().contains("helm"));
        assert!(cilium.what().starts_with("cilium 1."), "{}", cilium.what());
        assert!(cilium.containers()[2].ends_with("-worker2"));
    }

    #[test]
    fn a_pod_subnet_of_the_other_family_is_refused_before_anything_is_made() {
        let named = cluster::target::Target::names().find(|name| {
            let installation = targets::installation(name).unwrap();
            installation
                .kind
                .pod_subnet
                .is_some_and(|subnet| subnet.addr().is_ipv4())
        });
        let error = plan(named.unwrap(), IpFamilies::Ipv6).unwrap_err().to_string();
        assert!(error.contains("--ipv6 needs one of IPv6"), "{error}");
    }

    #[test]
    fn images_of_manifests_are_those_of_their_containers() {
        let manifests = "
kind: DaemonSet
spec: {template: {spec: {initContainers: [{image: 'a:1'}], containers: [{image: 'b:2'}, {name: x}]}}}
---
kind: ConfigMap
data: {image: no}
";
        let steps = [
            Step::Apply(manifests.to_owned()),
            Step::Run(vec!["kubectl".to_owned(), "image: c".to_owned()]),
        ];
        assert_eq!(
            named_images(&steps),
            BTreeSet::from(["a:1".to_owned(), "b:2".to_owned()])
        );
    }

    #[test]
    fn images_that_can_not_be_pulled_are_told_from_other_reasons_to_wait() {
        let text = "ErrImagePull own:1\nImagePullBackOff r.example/other:2\nContainerCreating c:3\n d:4\nErrImagePull own:1\n";
        let expected = ["own:1", "r.example/other:2"].map(str::to_owned);
        assert_eq!(unpulled_images(text), BTreeSet::from(expected));
    }

    #[tokio::test]
    async fn a_program_that_is_not_awaited_any_more_ends_with_those_that_it_has_started() {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "sleep 1000 & echo $!; wait"])
            .process_group(0)
            .stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let group = ProcessGroup(child.id());
        let mut first = String::new();
        let mut output = tokio::io::BufReader::new(child.stdout.take().unwrap());
        tokio::io::AsyncBufReadExt::read_line(&mut output, &mut first)
            .await
            .unwrap();
        drop(group);
        child.wait().await.unwrap();
        let started = PathBuf::from("/proc").join(first.trim()).join("cmdline");
        while std::fs::read_to_string(&started).is_ok_and(|line| line.contains("1000")) {
            sleep(Duration::from_millis(10)).await;
        }
    }

    #[test]
    fn a_failure_names_the_last_step_and_the_pods_that_do_not_run() {
        let failure = Failure("x\n+ kubectl apply\n+ kubectl rollout status\nerror: timed out\n".to_owned());
        assert_eq!(failure.step(), Some("kubectl rollout status"));
        assert!(failure.end().ends_with("error: timed out"));
        let lines = [
            "kube-system a 1/1 Running 0 1m",
            "kube-system b 0/1 Running 0 1m",
            "x c 0/1 Completed 0 1m",
            "x d 0/1 ImagePullBackOff 0 1m",
        ];
        assert_eq!(lines.map(is_running), [true, false, true, false]);
    }
}
