//! Without socket programs: those of an earlier start go, and come back with the next that wants them.

use std::{fs, thread, time::Instant};

use lb_loader::{Datapath, Options};

use crate::{
    restart::{attached_alone, one_service},
    support::{dial, isolated},
};

#[test]
fn socket_programs_that_are_not_wanted_any_more_go_and_the_maps_stay() {
    isolated(|node| {
        let (cluster_ip, server) = one_service(node, &node.start());
        assert_eq!(dial(cluster_ip).expect("a connection").0, server);
        let without = Options {
            sockets: false,
            ..node.options.clone()
        };
        let mut datapath = Datapath::open(&without).expect("the datapath opens");
        assert!(datapath.adopted());
        assert_eq!(datapath.programs().count(), 0);
        assert_eq!(datapath.attach().expect("nothing is in the way"), []);
        let pins = fs::read_dir(node.pins("links")).expect("a folder of pins");
        assert_eq!(pins.count(), 0);
        // The links end when a worker of the kernel comes to them.
        let deadline = Instant::now() + testing::patience::LIMIT;
        while !datapath.scan().expect("what is attached").is_empty() {
            assert!(Instant::now() < deadline, "links without pins stay attached");
            thread::yield_now();
        }
        drop(datapath);

        let datapath = node.start();
        assert!(datapath.adopted());
        attached_alone(node, &datapath);
        assert_eq!(dial(cluster_ip).expect("a connection").0, server);
    });
}
