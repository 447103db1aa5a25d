//! An agent without any API server, and what `plan --diff` and `dump` say beside it and after it.

use std::{fs, path::Path};

use nix::sys::signal::Signal;

use crate::{agent::Node, network::Network, place::place};

fn write(folder: &Path, backend: &str) {
    let text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\n\
         spec: {{clusterIP: 10.96.3.3, clusterIPs: [10.96.3.3], ports: [{{port: 80}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: web-1, labels: {{kubernetes.io/service-name: web}}}}\n\
         addressType: IPv4\nports: [{{port: 8080}}]\nendpoints: [{{addresses: [{backend}]}}]\n"
    );
    fs::write(folder.join("web.yaml"), text).expect("written");
}

#[test]
fn files_are_served_and_plan_and_dump_tell_what_is_and_what_should_be() {
    let Some(place) = place() else { return };
    let _network = Network::new();
    let folder = place.folder.join("objects");
    fs::create_dir(&folder).expect("a folder");
    write(&folder, "10.244.1.2");
    let config = place.folder.join("agent.yaml");
    fs::write(
        &config,
        format!(
            "from: {}\nlog-format: json\nlog-filter: debug\n",
            folder.display()
        ),
    )
    .expect("written");
    let node = Node::new(&place, false);
    let agent = node.start_from("--config", &config, &[]);
    agent.ready();
    node.until_dumped(&["TCP 10.96.3.3:80 -> 10.244.1.2:8080"]);

    // Nothing differs, with and without the agent.
    let folder_text = folder.display().to_string();
    let plan = ["plan", "--node", "here", "--from", &folder_text, "--diff"];
    assert_eq!(node.command(&plan), (Some(0), String::new(), String::new()));
    let (code, dump, from) = node.command(&["dump"]);
    assert_eq!(
        (code, from.as_str()),
        (Some(0), "from the agent at 127.0.0.1:9440\n")
    );
    assert_eq!(agent.get("/plan"), Some((200, dump.clone())));

    // A change is served, and its story is in the log under the Service's name.
    write(&folder, "10.244.1.3");
    node.until_dumped(&["TCP 10.96.3.3:80 -> 10.244.1.3:8080"]);
    let (code, metrics) = agent.get("/metrics").expect("metrics");
    assert_eq!(code, 200);
    assert!(
        metrics.contains("\nplumbline_programming_seconds_count 1\n"),
        "{metrics}"
    );
    let log = fs::read_to_string(place.folder.join("log")).expect("a log");
    let story = log
        .lines()
        .filter(|line| line.contains(r#""service":"default/web""#));
    let written = story
        .filter(|line| line.contains(r#""message":"written""#))
        .count();
    assert_eq!(written, 2, "{log}");

    // What programs may still have been looking at goes some time after the change.
    let changed = dump.replace("10.244.1.2:8080", "10.244.1.3:8080");
    node.eventually(|| match node.dump() {
        now if now == changed => Ok(()),
        now => Err(now),
    });

    // Ended, everything stays; the maps themselves are read, and compared with what the files say by now.
    agent.end(Signal::SIGTERM);
    write(&folder, "10.244.1.4");
    let (code, after, from) = node.command(&["dump"]);
    assert_eq!(code, Some(0));
    assert!(from.starts_with("from the maps that are pinned at "), "{from}");
    assert_eq!(after, changed);
    let (code, differences, errors) = node.command(&plan);
    assert_eq!(
        (code, differences.as_str(), errors.as_str()),
        (
            Some(1),
            "frontends\n- TCP 10.96.3.3:80 -> 10.244.1.3:8080\n+ TCP 10.96.3.3:80 -> 10.244.1.4:8080\n",
            ""
        )
    );
    let nowhere = ["plan", "--node", "here", "--from", "/nowhere", "--diff"];
    assert_eq!(node.command(&nowhere).0, Some(2));
}
