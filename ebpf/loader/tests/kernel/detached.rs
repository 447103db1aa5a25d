//! Programs run on packets that go nowhere, and what the options say to programs.

use lb_abi::{Address, Config, Counter, capacity};
use lb_loader::{Datapath, Detached, DeviceHook, Input, LoaderError, NodeOptions, Options};

use crate::support::isolated;

/// The loopback device.
const LOOPBACK: u32 = 1;

#[test]
fn a_packet_that_is_nobodys_passes_unchanged_and_is_counted() {
    isolated(|_| {
        let detached = Detached::load(capacity::CONNTRACK_LEAST).expect("loaded");
        // Ethernet with an EtherType that no program knows.
        let mut packet = [0_u8; 60];
        packet[12..14].copy_from_slice(&[0x88, 0xb5]);
        let input = Input {
            packet: &packet,
            ifindex: LOOPBACK,
            own: false,
            gso_size: 0,
            repeat: 3,
        };
        for (hook, times) in DeviceHook::ALL.into_iter().zip(1..) {
            let run = detached.run(hook, &input).expect("it runs");
            assert_eq!(
                (run.verdict, run.packet.as_slice()),
                // TC_ACT_UNSPEC: on to whatever comes next.
                (-1, packet.as_slice()),
                "{hook}"
            );
            let counts = detached.maps().counters().expect("the counters are read");
            assert_eq!(counts.get(Counter::PacketPassed), times * 3, "{hook}");
        }
    });
}

#[test]
fn what_can_not_be_run_is_an_error_that_names_it() {
    isolated(|_| {
        let detached = Detached::load(capacity::CONNTRACK_LEAST).expect("loaded");
        let packet = [0_u8; 60];
        let good = Input {
            packet: &packet,
            ifindex: LOOPBACK,
            own: false,
            gso_size: 0,
            repeat: 1,
        };
        let no_device = Input {
            ifindex: 4242,
            ..good
        };
        let too_short = Input {
            packet: &packet[..13],
            ..good
        };
        for (input, errno) in [(no_device, libc::ENODEV), (too_short, libc::EINVAL)] {
            match detached.run(DeviceHook::NodeIngress, &input) {
                Err(LoaderError::Kernel { what, source }) => {
                    assert_eq!(source.raw_os_error(), Some(errno), "{what}");
                    assert!(what.contains("node_ingress"), "{what}");
                }
                other => panic!("expected an error, got {other:?}"),
            }
        }
    });
}

#[test]
fn the_options_are_what_programs_are_told_and_flows_of_any_size_are_adopted() {
    isolated(|node| {
        let options = |flows, rejects_per_second| Options {
            flows: Some(flows),
            node: NodeOptions {
                own_cgroup: Some(node.options.cgroup.clone()),
                v4: Some([192, 0, 2, 7].into()),
                rejects_per_second,
                ..NodeOptions::default()
            },
            ..node.options.clone()
        };
        let told = |datapath: &Datapath| datapath.maps().config.get().expect("CONFIG is read");
        let datapath = Datapath::open(&options(capacity::CONNTRACK_LEAST + 7, 5)).expect("opened");
        let first = told(&datapath);
        let Config {
            own_cgroup,
            node_netns,
            snat_first,
            snat_last,
            ..
        } = first;
        assert_eq!(
            (first.node_v4, first.node_v6),
            (Address::v4([192, 0, 2, 7]), Address::UNSPECIFIED_V6)
        );
        assert_eq!(first.rejects_per_second, 5);
        assert!(own_cgroup != 0 && node_netns != 0, "{first:?}");
        assert_eq!((snat_first, snat_last), (1024, 65_535));
        drop(datapath);

        let datapath = Datapath::open(&options(capacity::CONNTRACK_LEAST, 0)).expect("opened");
        assert!(datapath.adopted(), "CONNTRACK of another size");
        let expected = Config {
            rejects_per_second: 0,
            ..first
        };
        assert_eq!(told(&datapath), expected);
    });
}

#[test]
fn addresses_that_the_options_do_not_give_stay_as_adopted_maps_have_them() {
    isolated(|node| {
        let open = |v4: Option<[u8; 4]>| {
            let options = Options {
                node: NodeOptions {
                    v4: v4.map(Into::into),
                    ..node.options.node.clone()
                },
                ..node.options.clone()
            };
            Datapath::open(&options).expect("opened")
        };
        let told = |datapath: &Datapath| {
            let config = datapath.maps().config.get().expect("CONFIG is read");
            (config.node_v4, config.node_v6)
        };
        let datapath = open(None);
        assert_eq!(
            told(&datapath),
            (Address::UNSPECIFIED_V4, Address::UNSPECIFIED_V6)
        );
        let (v4, v6) = (Address::v4([192, 0, 2, 7]), Address::v6([0xfd; 16]));
        let mut config = datapath.maps().config.get().expect("CONFIG is read");
        (config.node_v4, config.node_v6) = (v4, v6);
        datapath.maps().config.put(&config).expect("CONFIG is written");
        drop(datapath);

        let datapath = open(None);
        assert!(datapath.adopted());
        assert_eq!(
            told(&datapath),
            (v4, v6),
            "flows are masqueraded from these all along"
        );
        drop(datapath);
        assert_eq!(
            told(&open(Some([192, 0, 2, 8]))),
            (Address::v4([192, 0, 2, 8]), v6)
        );
    });
}
