//! Command line, environment and configuration file together.

use std::{ffi::OsString, fs};

use clap::{Parser, Subcommand};
use reference_agent::cli::{self, Command, Parsed};
use tempfile::TempDir;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Line,
}

#[derive(Debug, Subcommand)]
enum Line {
    #[command(flatten)]
    Agent(Command),
}

/// Reads `reference-agent COMMAND --config FILE MORE…`.
fn read(file: &str, command: &str, more: &[&str]) -> (Result<Parsed<Arguments>, clap::Error>, String) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("config.yaml");
    fs::write(&path, file).expect("written");
    let path = path.display().to_string();
    let line = ["reference-agent", command, "--config", &path]
        .into_iter()
        .chain(more.iter().copied());
    (cli::arguments(line.map(OsString::from).collect()), path)
}

fn printed(file: &str, more: &[&str]) -> String {
    let more: Vec<&str> = more.iter().copied().chain(["--print-config"]).collect();
    match read(file, "run", &more) {
        (Ok(Parsed::Configuration(text)), path) => text.replace(&path, "FILE"),
        (other, _) => panic!("a configuration, not {other:?}"),
    }
}

fn refused(file: &str) -> String {
    let (result, path) = read(file, "run", &[]);
    let error = result.expect_err("the file is wrong");
    assert_eq!(error.exit_code(), 2);
    error.to_string().replace(&path, "FILE")
}

/// Lines about options of interest.
fn lines(text: &str, names: &[&str]) -> Vec<String> {
    let of_interest = |line: &&str| {
        names
            .iter()
            .any(|name| line.starts_with(&format!("{name}:")) || line.starts_with(&format!("# {name}:")))
    };
    text.lines().filter(of_interest).map(str::to_owned).collect()
}

#[test]
fn the_file_gives_what_the_command_line_does_not() {
    let file = "node: worker-1\nlisten: 127.0.0.2:9441\nbackend-selection: maglev\n";
    let text = printed(file, &["--listen", "127.0.0.1:9442"]);
    let seen = lines(&text, &["node", "listen", "backend-selection", "bpffs", "from"]);
    assert_eq!(
        seen,
        [
            r#"node: "worker-1" # FILE"#,
            r#"backend-selection: "maglev" # FILE"#,
            "# from: not set",
            r#"bpffs: "/sys/fs/bpf" # default"#,
            r#"listen: "127.0.0.1:9442" # command line"#,
        ]
    );
}

#[test]
fn a_node_may_be_named_n() {
    assert_eq!(
        lines(&printed("node: n\n", &[]), &["node"]),
        [r#"node: "n" # FILE"#]
    );
}

#[test]
fn what_is_printed_is_a_file_that_says_the_same() {
    let file = "node: worker-1\nnode-devices: [eth*, bond0]\nnode-port-addresses: [192.0.2.0/24]\nlisten: 127.0.0.2:9441\n";
    let text = printed(file, &[]);
    let again = printed(&text, &[]);
    let bare = |text: &str| {
        let lines = text
            .lines()
            .map(|line| line.split(" # ").next().unwrap_or_default().to_owned());
        lines.collect::<Vec<_>>()
    };
    assert_eq!(bare(&again), bare(&text));
    let devices = text.split("node-devices:").nth(1).expect("devices");
    assert!(
        devices.starts_with(" # FILE\n- \"eth*\"\n- \"bond0\"\n"),
        "{text}"
    );
}

#[test]
fn a_key_that_is_no_option_is_refused_with_its_line_and_the_nearest_option() {
    let error = refused("node: worker-1\n\n# where to listen\nlissten: 127.0.0.1:1\n");
    assert!(
        error.contains("FILE, line 4: `lissten` is no option; the nearest is `listen`"),
        "{error}"
    );
}

#[rstest::rstest]
#[case::no_mapping("- node\n", "is no YAML mapping of options")]
#[case::broken("node: [\n", "is no YAML mapping of options")]
#[case::twice("node: a\nnode: b\n", "duplicate mapping key: node")]
#[case::a_list_for_one_value(
    "node: a\nlisten: [1, 2]\n",
    "FILE, line 2: `listen` takes one value, not a list"
)]
#[case::a_mapping("node: {a: b}\n", "FILE, line 1: `node` is a text or a number")]
#[case::nothing("node:\n", "FILE, line 1: `node` is a text or a number, not null")]
#[case::a_value_that_is_none(
    "node: a\nlisten: here\n",
    "invalid value 'here' for '--listen <ADDRESS:PORT>'"
)]
#[case::ports_that_are_none(
    "node: a\nsnat-ports: 20-10\n",
    "expected the first and the last port, from 1 to 65535"
)]
#[case::too_few_connections("node: a\nconnections: 100\n", "100 is not in 8192..=4194304")]
#[case::an_address_for_a_range(
    "node: a\nservice-cidr: [10.96.0.0]\n",
    "expected a range such as 10.96.0.0/12"
)]
#[case::a_range_of_everything(
    "node: a\nservice-cidr: [0.0.0.0/0]\n",
    "expected a range such as 10.96.0.0/12"
)]
#[case::itself("config: other.yaml\n", "`config` is no option")]
#[case::nothing_required("listen: 127.0.0.1:1\n", "--node <NAME>")]
fn a_file_that_is_wrong_is_refused_with_what_is_wrong(#[case] file: &str, #[case] expected: &str) {
    let error = refused(file);
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let line = [
        "reference-agent",
        "run",
        "--node",
        "a",
        "--config",
        "/nowhere/config.yaml",
    ];
    let error = cli::arguments::<Arguments>(line.map(OsString::from).to_vec()).expect_err("there is none");
    let text = error.to_string();
    assert!(
        text.contains("the configuration file /nowhere/config.yaml can't be read"),
        "{text}"
    );
}

#[test]
fn an_empty_file_is_none() {
    let (result, _) = read("# nothing yet\n", "run", &["--node", "a"]);
    assert!(matches!(result, Ok(Parsed::Arguments(_))), "{result:?}");
}

#[test]
fn without_a_file_the_command_line_is_all() {
    let line = ["reference-agent", "cleanup", "--bpffs", "/b"].map(OsString::from);
    let parsed = cli::arguments::<Arguments>(line.to_vec()).expect("arguments");
    let Parsed::Arguments(Arguments {
        command: Line::Agent(command),
    }) = parsed
    else {
        panic!("not to be printed");
    };
    assert!(matches!(command, Command::Cleanup(_)));
}

#[test]
fn help_names_every_option_of_the_agent_under_a_heading() {
    let line = ["reference-agent", "run", "--help"].map(OsString::from);
    let help = cli::arguments::<Arguments>(line.to_vec()).expect_err("help is printed, nothing done");
    assert_eq!(help.exit_code(), 0);
    let text = help.to_string();
    for heading in [
        "Source of objects:",
        "The agent's own way to the API server:",
        "Addresses and devices of this node:",
        "Where programs and maps are:",
        "What the agent says:",
    ] {
        assert!(text.contains(heading), "{heading} is missing in {text}");
    }
}
