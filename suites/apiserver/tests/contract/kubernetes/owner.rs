//! Whose a container is: it outlives a test that is killed, and the next one removes it.

use std::{collections::HashMap, fmt, fs, process, str::FromStr};

use testcontainers::{
    bollard::{
        errors::Error,
        query_parameters::{ListContainersOptionsBuilder, RemoveContainerOptionsBuilder},
    },
    core::client::docker_client_instance,
};

/// Label of the containers; its value is an [`Owner`].
pub(super) const OWNER: &str = "plumbline.owner";

/// A process, distinguished from later ones with its id, and from those of other machines and PID namespaces that share a
/// Docker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    boot: String,
    namespace: String,
    pid: u32,
    start: u64,
}

impl Owner {
    /// This process.
    pub(super) fn this() -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the id of this boot");
        let namespace = fs::read_link("/proc/self/ns/pid").expect("this PID namespace");
        let pid = process::id();
        Self {
            boot: boot.trim().to_owned(),
            namespace: namespace.display().to_string(),
            pid,
            start: start_time(pid).expect("this process runs"),
        }
    }

    /// Whether it has ended. `false` of one that can't be seen from here.
    fn has_ended(&self) -> bool {
        let this = Self::this();
        (&self.boot, &self.namespace) == (&this.boot, &this.namespace)
            && start_time(self.pid) != Some(self.start)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            boot,
            namespace,
            pid,
            start,
        } = self;
        write!(f, "{boot} {namespace} {pid} {start}")
    }
}

impl FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split(' ').collect();
        let owner = match fields[..] {
            [boot, namespace, pid, start] => {
                pid.parse().ok().zip(start.parse().ok()).map(|(pid, start)| Self {
                    boot: boot.to_owned(),
                    namespace: namespace.to_owned(),
                    pid,
                    start,
                })
            }
            _ => None,
        };
        owner.ok_or_else(|| format!("expected a boot, a PID namespace, a PID and its start, found {text:?}"))
    }
}

/// Removes the containers of tests that have ended without removing them.
pub(super) async fn remove_orphans() {
    let docker = docker_client_instance().await.expect("a client of Docker");
    let labelled = ListContainersOptionsBuilder::new()
        .all(true)
        .filters(&HashMap::from([("label", vec![OWNER])]))
        .build();
    let all = docker.list_containers(Some(labelled)).await.expect("a list");
    for container in all {
        let owner = container.labels.and_then(|mut labels| labels.remove(OWNER));
        let (Some(id), Some(owner)) = (container.id, owner) else {
            continue;
        };
        let owner: Owner = owner
            .parse()
            .unwrap_or_else(|why| panic!("{OWNER} of container {id}: {why}"));
        if owner.has_ended() {
            let force = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
            let removed = docker.remove_container(&id, Some(force)).await;
            match removed {
                // Another test removes it, or has done so.
                Ok(())
                | Err(Error::DockerResponseServerError {
                    status_code: 404 | 409,
                    ..
                }) => {}
                Err(error) => panic!("container {id} of a test that was killed: {error}"),
            }
        }
    }
}

/// When a process started, in clock ticks since the machine did (proc(5): field 22 of stat). `None`: none of this id
/// runs; zombies have ended.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ended = fields.first() == Some(&"Z");
    fields.get(19).filter(|_| !ended)?.parse().ok()
}

#[test]
fn an_owner_is_told_from_those_that_have_ended_and_from_those_elsewhere() {
    let this = Owner::this();
    assert_eq!(this.to_string().parse(), Ok(this.clone()));
    assert!(!this.has_ended());
    let earlier = Owner {
        start: this.start - 1,
        ..this.clone()
    };
    assert!(earlier.has_ended(), "a later process has its id");
    let elsewhere = Owner {
        boot: "another".to_owned(),
        ..earlier
    };
    assert!(!elsewhere.has_ended(), "nothing is known of it");
    assert!("1 2".parse::<Owner>().is_err());
}
