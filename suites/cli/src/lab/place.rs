//! `plumbline lab exec`, and how places are named on a command line.

use std::{process::ExitCode, str::FromStr};

use anyhow::bail;
use cluster::Place;
use lab::{DEFAULT_NAME, LabCluster};

#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    /// The lab's name.
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
    /// A node's name, pod/NAMESPACE/NAME, or outside.
    place: PlaceArg,
    /// The program and its arguments; `probe` and `plumbline` are available everywhere.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// A place as an option value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlaceArg(Place);

impl FromStr for PlaceArg {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('/').collect();
        let place = match parts.as_slice() {
            ["outside"] => Place::Outside,
            [node] if !node.is_empty() => Place::Host {
                node: (*node).to_owned(),
            },
            ["pod", namespace, name] if !namespace.is_empty() && !name.is_empty() => Place::Pod {
                namespace: (*namespace).to_owned(),
                name: (*name).to_owned(),
            },
            _ => bail!("expected a node's name, pod/NAMESPACE/NAME or outside, found '{text}'"),
        };
        Ok(Self(place))
    }
}

pub(super) async fn run(args: ExecArgs) -> anyhow::Result<ExitCode> {
    let lab = LabCluster::attach(&args.name).await?;
    Ok(lab.become_program(&args.place.0, &args.command).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        let read = |text: &str| text.parse::<PlaceArg>().map(|place| place.0);
        assert_eq!(read("outside").expect("a place"), Place::Outside);
        assert_eq!(
            read("node1").expect("a place"),
            Place::Host {
                node: "node1".to_owned()
            }
        );
        let pod = Place::Pod {
            namespace: "default".to_owned(),
            name: "b1".to_owned(),
        };
        assert_eq!(read("pod/default/b1").expect("a place"), pod);
        for wrong in ["", "pod/b1", "pod//b1", "pod/a/b/c", "default/b1"] {
            let error = read(wrong).expect_err("refused").to_string();
            assert!(error.contains("expected a node's name"), "{error}");
        }
    }
}
