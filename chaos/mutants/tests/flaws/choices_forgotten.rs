//! The mutant forgets the choices of unconnected sockets continuously, but not before it is attached.

use std::{thread, time::Duration};

use lb_abi::{Chosen, ChosenKey};
use mutants::choices_forgotten::choices_forgotten;
use reference_agent::{
    datapath::Datapath as _,
    testing::{node::Node, objects::address},
};

const FRONTEND: &str = "UDP 10.96.0.1:53";
/// Longer than on any machine.
const LOOKS: usize = 1000;

fn choose(node: &Node, cookie: u64) {
    let key = ChosenKey {
        cookie,
        frontend: address(FRONTEND).frontend_key(),
        pad: 0,
    };
    let chosen = Chosen {
        service: 1,
        backend: 1,
    };
    node.note_choice(key, chosen);
}

#[test]
fn what_sockets_choose_is_forgotten_once_it_is_attached_and_again() {
    let node = Node::new();
    let mut datapath = choices_forgotten(node.open());
    choose(&node, 1);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(node.choices(), [1].into());
    datapath.attach().unwrap();
    for cookie in [1, 2] {
        choose(&node, cookie);
        let forgotten = (0..LOOKS).any(|_| {
            thread::sleep(Duration::from_millis(10));
            node.choices().is_empty()
        });
        assert!(forgotten, "the choice of socket {cookie}");
    }
}
