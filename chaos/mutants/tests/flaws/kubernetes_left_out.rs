//! The mutant does not serve `default/kubernetes`, but every other Service like the production agent.

use mutants::kubernetes_left_out::KubernetesLeftOut;
use reference_agent::{
    control::Planner,
    maps::Contents,
    testing::{
        World,
        objects::{service, slice},
    },
};

#[test]
fn only_default_kubernetes_is_left_out() {
    let mut world = World::with(KubernetesLeftOut(Planner::default()), &Contents::default());
    world.sync();
    for (namespace, name, address) in [
        ("default", "kubernetes", "10.96.0.1"),
        ("default", "kubernetes-x", "10.96.0.2"),
        ("other", "kubernetes", "10.96.0.3"),
    ] {
        world.put_service(service(&format!("{namespace}/{name}"), address, &["TCP 443"]));
        world.put_slice(slice(
            &format!("{namespace}/{name}-1"),
            name,
            &["TCP 443"],
            &["1.1.1.1"],
        ));
    }
    assert!(world.serves("TCP 10.96.0.1:443").is_none());
    for other in ["TCP 10.96.0.2:443", "TCP 10.96.0.3:443"] {
        assert_eq!(world.serves(other).expect("a frontend").len(), 1, "{other}");
    }
}
