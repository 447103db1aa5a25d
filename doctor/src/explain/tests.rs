//! Explanations of chains written by hand.

use std::convert::Infallible;

use super::*;
use crate::{
    fixture::{Fixture, at, map},
    report::{Manner, ProgArray, Standing},
};

fn request(text: &str) -> Request {
    let (protocol, socket) = text.split_once(' ').expect("a protocol and an address");
    let socket: SocketAddr = socket.parse().expect("an address");
    Request {
        destination: Destination {
            protocol: if protocol == "TCP" {
                Protocol::Tcp
            } else {
                Protocol::Udp
            },
            address: socket.ip(),
            port: socket.port(),
        },
        outside: false,
        cgroup: "/sys/fs/cgroup/kubepods/pod1".into(),
    }
}

fn explain_at(fixture: &mut Fixture, request: &Request, chain: &[u32]) -> Explanation {
    let report = fixture.report();
    let Ok(explanation) = explain(&report, &fixture.bytes, request, |_| {
        Ok::<_, Infallible>(chain.to_vec())
    });
    explanation
}

fn reaches(explanation: &Explanation) -> Option<Vec<String>> {
    match &explanation.ways.first()?.end {
        End::Reaches { addresses, .. } => Some(addresses.iter().map(ToString::to_string).collect()),
        End::Stopped { .. } => None,
    }
}

#[test]
fn incident_two_names_the_culprit() {
    let mut fixture = Fixture::incident();
    let explanation = explain_at(&mut fixture, &request("TCP 172.17.93.4:8080"), &[113, 205]);
    assert_eq!(
        reaches(&explanation),
        Some(vec!["172.16.149.220:8080".to_owned()])
    );
    assert!(!explanation.consistent);
    assert_eq!(explanation.culprits, [113]);
    let steps = &explanation.ways[0].steps;
    assert_eq!(steps[1].answer, Answer::NotAService, "it sees the pod's address");
    assert_eq!(
        explanation.conclusion,
        "By connect4, a client that connects to TCP 172.17.93.4:8080 reaches 172.16.149.220:8080: stale program 113 \
         (cil_sock4_conne, which reads map 27) sends it there. Program 205 (cil_sock4_conne, which reads map 144) would \
         make it 172.16.109.127:8080, but sees only 172.16.149.220:8080, which is no service to it."
    );
}

#[test]
fn where_both_agree_the_stale_one_still_decides() {
    let mut fixture = Fixture::incident();
    let explanation = explain_at(&mut fixture, &request("TCP 10.96.0.1:443"), &[113, 205]);
    assert_eq!(reaches(&explanation), Some(vec!["192.0.2.1:443".to_owned()]));
    assert!(!explanation.consistent, "until the next change");
    assert_eq!(explanation.culprits, [113]);
}

#[test]
fn a_stale_program_that_comes_too_late_misleads_nobody() {
    let mut fixture = Fixture::incident();
    let explanation = explain_at(&mut fixture, &request("TCP 172.17.93.4:8080"), &[205, 113]);
    assert_eq!(
        reaches(&explanation),
        Some(vec!["172.16.109.127:8080".to_owned()])
    );
    assert!(explanation.consistent, "{}", explanation.conclusion);
    assert!(
        explanation.conclusion.contains("stale program 113")
            || explanation.conclusion.contains("Stale program 113")
    );
}

#[test]
fn what_is_no_service_is_left_alone() {
    let mut fixture = Fixture::incident();
    let explanation = explain_at(&mut fixture, &request("TCP 192.0.2.77:80"), &[113, 205]);
    assert_eq!(reaches(&explanation), Some(vec!["192.0.2.77:80".to_owned()]));
    assert!(explanation.consistent);
    assert!(
        explanation.conclusion.contains("no program changes it"),
        "{}",
        explanation.conclusion
    );
    let empty = explain_at(&mut fixture, &request("TCP 192.0.2.77:80"), &[]);
    assert!(
        empty.conclusion.contains("No program runs on the way"),
        "{}",
        empty.conclusion
    );
}

#[test]
fn refused_is_refused_whoever_runs_later() {
    let mut fixture = Fixture::incident();
    fixture.cilium(27, 28, [10, 96, 0, 9], 80, &[]);
    fixture.cilium(144, 145, [10, 96, 0, 9], 80, &[[10, 0, 0, 9]]);
    let explanation = explain_at(&mut fixture, &request("TCP 10.96.0.9:80"), &[113, 205]);
    assert!(
        matches!(
            explanation.ways[0].end,
            End::Stopped {
                by: 113,
                answer: Answer::Refused { .. }
            }
        ),
        "{explanation:#?}"
    );
    assert_eq!(explanation.culprits, [113]);
    assert!(
        explanation.conclusion.contains("runs too, and can't undo it"),
        "{}",
        explanation.conclusion
    );
}

#[test]
fn a_program_of_unknown_layout_is_said_to_be_unknown() {
    let mut fixture = Fixture::incident();
    fixture.map(map(7, "secret", 8, 8, &[]));
    fixture.program(9, "their_connect4", Some(1), &[7]);
    fixture.legacy(at("/sys/fs/cgroup", "connect4"), 2, 9);
    let explanation = explain_at(&mut fixture, &request("TCP 10.96.0.1:443"), &[205, 9]);
    assert!(matches!(
        explanation.ways[0].steps[1].answer,
        Answer::Unknown { .. }
    ));
    assert!(
        explanation.conclusion.contains("can't be known"),
        "{}",
        explanation.conclusion
    );
    assert!(
        explanation.conclusion.contains("7 secret"),
        "{}",
        explanation.conclusion
    );
}

#[test]
fn udp_has_two_ways_and_packets_from_outside_have_devices() {
    let mut fixture = Fixture::incident();
    fixture.program(300, "cil_from_netdev", Some(7200), &[144, 145]);
    fixture.attach(
        Place::Device {
            index: 2,
            name: Some("eth0".to_owned()),
            layer: Layer::Tcx,
            direction: Direction::Ingress,
        },
        0,
        300,
        Manner::Legacy { flags: 0 },
        Standing::Foreign,
    );
    let udp = explain_at(&mut fixture, &request("UDP 192.0.2.7:53"), &[]);
    let names: Vec<&str> = udp.ways.iter().map(|way| way.name.as_str()).collect();
    assert_eq!(
        names,
        ["connect4", "sendmsg4"],
        "packets of this node do not come in from the network"
    );
    let mut outside = request("TCP 172.17.93.4:8080");
    outside.outside = true;
    let explanation = explain_at(&mut fixture, &outside, &[]);
    assert_eq!(
        reaches(&explanation),
        Some(vec!["172.16.109.127:8080".to_owned()])
    );
    assert_eq!(explanation.ways[0].name, "ingress of eth0");
    assert!(explanation.consistent);
}

/// Program 1 reads no services itself, and goes on as others by array 9.
#[track_caller]
fn explain_calling(programs: &[u32]) -> Explanation {
    let mut fixture = Fixture::incident();
    fixture.attachments.clear();
    fixture.map(map(9, "cilium_calls_00", 4, 4, &[]));
    fixture.program(1, "cil_sock4_conne", Some(1), &[9]);
    fixture.legacy(at("/sys/fs/cgroup", "connect4"), 0, 1);
    let mut report = fixture.report();
    report.prog_arrays = vec![ProgArray {
        map: 9,
        callers: vec![1],
        programs: programs.to_vec(),
    }];
    let request = request("TCP 172.17.93.4:8080");
    let Ok(explanation) = explain(&report, &fixture.bytes, &request, |_| {
        Ok::<_, Infallible>(vec![1])
    });
    explanation
}

#[test]
fn a_program_decides_by_the_maps_of_those_that_it_goes_on_as() {
    let explanation = explain_calling(&[205]);
    let steps = &explanation.ways[0].steps;
    assert_eq!(steps[0].by_maps, [144]);
    assert_eq!(
        reaches(&explanation),
        Some(vec!["172.16.109.127:8080".to_owned()])
    );
    let nothing = explain_calling(&[]);
    let because = "can't be known: the layout of its maps (9 cilium_calls_00) is not known here";
    assert_eq!(nothing.ways[0].steps[0].answer.to_string(), because);
}

#[test]
fn where_those_read_different_maps_it_is_not_known_which_decide() {
    let explanation = explain_calling(&[113, 205]);
    assert_eq!(
        explanation.ways[0].steps[0].answer.to_string(),
        "can't be known: it goes on as other programs by tail calls, which read different maps: program 113 maps 27, \
         program 205 maps 144"
    );
}
