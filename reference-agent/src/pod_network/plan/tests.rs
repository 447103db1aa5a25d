//! Nodes in, routes, ranges and troubles out.

use std::fmt::Write as _;

use super::*;

/// `name InternalIP,… podCIDR,…`
fn node(text: &str) -> Node {
    let mut words = text.split(' ');
    let mut list = || words.next().filter(|word| *word != "-");
    let name = list().expect("a name").to_owned();
    let internal: Vec<IpAddr> = list()
        .into_iter()
        .flat_map(|list| list.split(','))
        .map(|ip| ip.parse().expect("an address"))
        .collect();
    let pods = list().into_iter().flat_map(|list| list.split(','));
    let pods = pods.map(|range| range.parse::<IpNet>().expect("a range"));
    Node {
        name,
        addresses: internal.clone(),
        internal,
        pods: pods
            .filter_map(|range| Range::new(range.addr(), range.prefix_len()))
            .collect(),
        ..Node::default()
    }
}

fn nodes(texts: &[&str]) -> Vec<Node> {
    texts.iter().map(|text| node(text)).collect()
}

fn shown(plan: &Plan) -> String {
    let mut text = String::new();
    for range in &plan.own {
        let _ = writeln!(text, "own {range}");
    }
    for (range, hop) in &plan.routes {
        let _ = writeln!(text, "{range} via {} of {}", hop.gateway, hop.node);
    }
    for range in &plan.kept {
        let _ = writeln!(text, "kept {range}");
    }
    text + &plan.troubles.join("\n")
}

#[test]
fn other_nodes_are_reached_by_their_internal_addresses_in_both_families() {
    let nodes = nodes(&[
        "c 192.0.2.3,2001:db8::3 10.244.3.0/24,fd00:3::/64",
        "a 192.0.2.1,2001:db8::1 10.244.1.0/24,fd00:1::/64",
        "b 2001:db8::2,192.0.2.2,192.0.2.9 10.244.2.0/24,fd00:2::/64",
    ]);
    let plan = plan("a", &nodes);
    assert_eq!(
        shown(&plan),
        "own 10.244.1.0/24\nown fd00:1::/64\n\
         10.244.2.0/24 via 192.0.2.2 of b\n10.244.3.0/24 via 192.0.2.3 of c\n\
         fd00:2::/64 via 2001:db8::2 of b\nfd00:3::/64 via 2001:db8::3 of c\n\
         kept 10.244.1.0/24\nkept 10.244.2.0/23\nkept 192.0.2.1/32\nkept 192.0.2.2/31\nkept 192.0.2.9/32\n\
         kept 2001:db8::1/128\nkept 2001:db8::2/127\nkept fd00:1::/64\nkept fd00:2::/64\nkept fd00:3::/64\n"
    );
    let mut turned: Vec<&Node> = nodes.iter().collect();
    turned.reverse();
    assert_eq!(
        super::plan("a", turned),
        plan,
        "the order of Nodes does not matter"
    );
}

#[test]
fn what_can_not_be_used_is_left_out_and_named() {
    for (others, sentence) in [
        (
            "b 192.0.2.2 10.244.1.0/24",
            "the podCIDR 10.244.1.0/24 of the node b is left out: 10.244.1.0/24 is that of the node a",
        ),
        (
            "b 192.0.2.2 10.244.0.0/16",
            "left out: 10.244.1.0/24 is that of the node a",
        ),
        (
            "b 192.0.2.2 10.244.1.128/25",
            "left out: 10.244.1.0/24 is that of the node a",
        ),
        ("b 192.0.2.2 0.0.0.0/0", "left out"),
        (
            "b 192.0.2.2 192.0.2.0/24",
            "a node has the address 192.0.2.1 of it",
        ),
        ("b - 10.244.2.0/24", "it has no InternalIP of that family"),
        (
            "b 2001:db8::2 10.244.2.0/24",
            "it has no InternalIP of that family",
        ),
    ] {
        let plan = plan("a", &nodes(&["a 192.0.2.1 10.244.1.0/24", others]));
        assert!(plan.routes.is_empty(), "{others}: {}", shown(&plan));
        assert!(
            plan.troubles.len() == 1 && plan.troubles[0].contains(sentence),
            "{others}: {}",
            shown(&plan)
        );
    }
    let twice = nodes(&[
        "c 192.0.2.3 10.244.2.0/24",
        "a 192.0.2.1 10.244.1.0/24",
        "b 192.0.2.2 10.244.2.0/24",
    ]);
    let plan = plan("a", &twice);
    assert_eq!(
        plan.routes.values().map(|hop| &*hop.node).collect::<Vec<_>>(),
        ["b"]
    );
    assert!(
        plan.troubles[0].contains("of the node c is left out"),
        "{}",
        shown(&plan)
    );
}

#[test]
fn without_ranges_of_its_own_a_node_reaches_others_and_says_what_lacks() {
    for (nodes_, sentence) in [
        (&["b 192.0.2.2 10.244.2.0/24"][..], "there is no Node a"),
        (
            &["a 192.0.2.1 -", "b 192.0.2.2 10.244.2.0/24"],
            "--allocate-node-cidrs",
        ),
    ] {
        let plan = plan("a", &nodes(nodes_));
        assert!(plan.own.is_empty() && plan.routes.len() == 1, "{}", shown(&plan));
        assert!(plan.troubles[0].contains(sentence), "{}", shown(&plan));
    }
}
