//! The file as it is written, and files of others beside it.

use super::*;

fn ranges(text: &str) -> Vec<IpNet> {
    text.split(' ')
        .map(|range| range.parse().expect("a range"))
        .collect()
}

#[test]
fn the_file_is_that_of_the_golden_files() {
    for (text, mtu, golden) in [
        ("10.244.1.0/24", Some(1500), include_str!("../golden/v4.conflist")),
        ("fd00:1::/64", Some(1280), include_str!("../golden/v6.conflist")),
        (
            "10.244.1.0/24 fd00:1::/64",
            None,
            include_str!("../golden/dual.conflist"),
        ),
    ] {
        assert_eq!(Conflist::render("n", &ranges(text), mtu), golden, "{text}");
    }
}

#[test]
fn it_is_written_once_and_removed_once_and_nothing_else_is_left() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("cni/net.d");
    let conflist = Conflist::new(&folder);
    assert!(!conflist.exists().expect("looked") && !conflist.remove().expect("nothing there"));
    let text = Conflist::render("n", &ranges("10.244.1.0/24"), None);
    assert!(conflist.write(&text).expect("written") && !conflist.write(&text).expect("as it was"));
    let other = Conflist::render("n", &ranges("10.244.2.0/24"), None);
    assert!(conflist.write(&other).expect("written"));
    assert_eq!(fs::read_to_string(conflist.path()).expect("read"), other);
    let names: Vec<_> = fs::read_dir(&folder)
        .expect("read")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(names, [FILE]);
    assert!(conflist.foreign().expect("read").is_empty());
    // A writer that was killed.
    fs::write(folder.join(TEMPORARY), "{").expect("written");
    assert!(
        conflist.foreign().expect("read").is_empty(),
        "no runtime reads it"
    );
    assert!(conflist.remove().expect("removed") && !conflist.remove().expect("gone"));
    assert_eq!(fs::read_dir(&folder).expect("read").count(), 0);
}

#[test]
fn what_others_have_written_is_named_and_stays() {
    let place = tempfile::tempdir().expect("a folder");
    let conflist = Conflist::new(place.path());
    for name in [
        "05-x.conf",
        "87-podman.conflist",
        "z.json",
        "10-y.conflist.bak",
        "README",
    ] {
        fs::write(place.path().join(name), "{}").expect("written");
    }
    fs::write(conflist.path(), r#"{"name": "mine"}"#).expect("written");
    let foreign = conflist.foreign().expect("read");
    assert_eq!(foreign, ["05-x.conf", FILE, "87-podman.conflist", "z.json"]);
    assert!(!conflist.remove().expect("looked") && conflist.path().exists());
    let said = |foreign: &[&str], ours| {
        let foreign: Vec<String> = foreign.iter().map(ToString::to_string).collect();
        conflist.warning(&foreign, ours).unwrap_or_default()
    };
    assert_eq!(said(&[], true), "");
    assert!(said(&["87-podman.conflist"], false).contains("no pod network is set up here"));
    assert!(said(&["05-x.conf"], true).contains("takes 05-x.conf"));
    assert!(said(&["87-podman.conflist"], true).contains("takes the latter"));
}
