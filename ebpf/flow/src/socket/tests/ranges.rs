//! Addresses that Services get, and none has.

use super::*;

#[test]
fn an_address_that_services_get_and_none_has_is_refused_unless_it_is_the_clusters() {
    let model = Model::two_pods();
    let free = Address::v4([10, 96, 7, 7]);
    for (ranged, expected) in [
        (None, Verdict::Pass),
        (Some((free, false)), Verdict::Refuse(Refusal::NoBackend)),
        (Some((free, true)), Verdict::Pass),
    ] {
        let caller = Client {
            ranged,
            ..Client::default()
        };
        check(&model, &caller, tcp(free, 80), expected);
    }
}
