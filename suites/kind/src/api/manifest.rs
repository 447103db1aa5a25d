//! Changes of kubeadm's static pod manifest of an API server.

use std::net::{IpAddr, SocketAddr};

/// Changes the advertised address. `None`: the manifest is not kubeadm's.
pub(super) fn advertising(manifest: &str, front: IpAddr) -> Option<String> {
    with_flag(manifest, "--advertise-address=", &front.to_string())
}

/// The same API server on another node, with the first one's etcd.
pub(super) fn on_node(manifest: &str, node: IpAddr, etcd: SocketAddr) -> Option<String> {
    let with_etcd = with_flag(manifest, "--etcd-servers=", &format!("https://{etcd}"))?;
    let mut probed = false;
    let annotation = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: ";
    let lines = with_etcd.lines().map(|line| {
        if let Some((before, _)) = line
            .split_once("host: ")
            .filter(|(before, _)| before.trim().is_empty())
        {
            probed = true;
            return format!("{before}host: {:?}\n", node.to_string());
        }
        match line.split_once(annotation) {
            Some((before, _)) => format!(
                "{before}{annotation}{:?}\n",
                SocketAddr::from((node, super::PORT)).to_string()
            ),
            None => format!("{line}\n"),
        }
    });
    let text: String = lines.collect();
    probed.then_some(text)
}

/// The same API server as a new pod: kubelet identifies a static pod by its manifest, and delays one that was killed
/// several times (`CrashLoopBackOff`). `None`: the manifest is not kubeadm's.
pub(super) fn anew(manifest: &str, start: &str) -> Option<String> {
    const HEAD: &str = "  annotations:";
    const START: &str = "    plumbline/start: ";
    let mut is_told = false;
    let mut text = String::new();
    for line in manifest.lines().filter(|line| !line.starts_with(START)) {
        text += &format!("{line}\n");
        if line == HEAD && !is_told {
            is_told = true;
            text += &format!("{START}{start:?}\n");
        }
    }
    is_told.then_some(text)
}

/// Value of a flag.
pub(super) fn flag<'a>(manifest: &'a str, flag: &str) -> Option<&'a str> {
    let found = manifest.lines().find_map(|line| line.split_once(flag));
    found.map(|(_, value)| value.trim())
}

/// Version, from the tag of the image.
pub(super) fn version(manifest: &str) -> Option<&str> {
    let image = flag(manifest, " image: ")?;
    Some(image.rsplit_once(':')?.1.trim_matches('"'))
}

fn with_flag(manifest: &str, flag: &str, value: &str) -> Option<String> {
    let mut found = false;
    let lines = manifest.lines().map(|line| match line.split_once(flag) {
        Some((before, _)) => {
            found = true;
            format!("{before}{flag}{value}\n")
        }
        None => format!("{line}\n"),
    });
    let text: String = lines.collect();
    found.then_some(text)
}

/// Replaces the server in a kubeconfig of one cluster. `None`: it has no server.
pub(crate) fn asking(kubeconfig: &str, front: SocketAddr) -> Option<String> {
    with_flag(kubeconfig, "server: ", &format!("https://{front}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBEADM: &str = include_str!("../golden/kube-apiserver.yaml");

    #[test]
    fn the_second_is_the_first_on_another_node_with_the_same_etcd_and_advertised_address() {
        let front = "172.18.0.9".parse().expect("an address");
        let first = advertising(KUBEADM, front).expect("kubeadm's");
        let etcd = "172.18.0.3:2379".parse().expect("an address");
        let second = on_node(&first, "172.18.0.2".parse().expect("an address"), etcd);
        let second = second.expect("kubeadm's");
        assert_eq!(second, include_str!("../golden/kube-apiserver-2.yaml"));
        assert_eq!(flag(&second, "--advertise-address="), Some("172.18.0.9"));
    }

    #[test]
    fn each_start_is_of_another_pod_with_nothing_else_changed() {
        let first = anew(KUBEADM, "1").expect("kubeadm's");
        let second = anew(&first, "2").expect("kubeadm's");
        let without =
            |text: &str, start: &str| text.replacen(&format!("    plumbline/start: {start:?}\n"), "", 1);
        assert_ne!(first, second);
        assert_eq!(without(&first, "1"), KUBEADM);
        assert_eq!(without(&second, "2"), KUBEADM);
        let read: serde_json::Value = serde_saphyr::from_str(&second).expect("YAML");
        assert_eq!(read["metadata"]["annotations"]["plumbline/start"], "2");
        assert_eq!(anew("kind: Pod\n", "1"), None);
    }

    #[test]
    fn addresses_of_both_families_are_written_as_urls_have_them() {
        let etcd = "[fc00::3]:2379".parse().expect("an address");
        let second = on_node(KUBEADM, "fc00::2".parse().expect("an address"), etcd);
        let second = second.expect("kubeadm's");
        assert_eq!(flag(&second, "--etcd-servers="), Some("https://[fc00::3]:2379"));
        assert!(second.contains("host: \"fc00::2\"\n"), "{second}");
        let asks = asking(
            "    server: https://a:6443\n",
            "[fc00::9]:6443".parse().expect("an address"),
        );
        assert_eq!(asks.as_deref(), Some("    server: https://[fc00::9]:6443\n"));
    }

    #[test]
    fn what_is_not_of_kubeadm_is_not_changed() {
        let front: IpAddr = [172, 18, 0, 9].into();
        assert_eq!(advertising("kind: Pod\n", front), None);
        assert_eq!(
            on_node("    - --etcd-servers=x\n", front, (front, 2379).into()),
            None,
            "no probe"
        );
        assert_eq!(asking("kind: Config\n", (front, 6443).into()), None);
        assert_eq!(version(KUBEADM), Some("v1.36.3"));
        assert_eq!(version("kind: Pod\n"), None);
    }
}
