//! The node: addresses at its loopback device, servers, and the doctor.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    path::PathBuf,
    process::Command,
    thread,
    time::Duration,
};

use futures::TryStreamExt as _;
use reference_agent::doctor::{explain::Explanation, report::Report};

/// A test's node.
pub(crate) struct Node {
    pub(crate) cgroup: PathBuf,
    pub(crate) bpffs: PathBuf,
}

/// What a run of the doctor said.
#[derive(Debug)]
pub(crate) struct Doctor {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Doctor {
    /// Stdout with every run of blanks and line breaks as one blank: paragraphs as they were before they were broken.
    pub(crate) fn text(&self) -> String {
        self.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn report(&self) -> Report {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    pub(crate) fn explanation(&self) -> Explanation {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

impl Node {
    pub(super) fn new(cgroup: PathBuf, bpffs: PathBuf) -> Self {
        Self { cgroup, bpffs }
    }

    /// `plumbline doctor`, on this node alone, though the tests beside it share the kernel.
    pub(crate) fn doctor(&self, arguments: &[&str]) -> Doctor {
        let (subcommand, arguments) = match arguments {
            ["explain", rest @ ..] => (&["explain"][..], rest),
            _ => (&[][..], arguments),
        };
        let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
            .arg("doctor")
            .args(subcommand)
            .arg("--below")
            .arg(&self.cgroup)
            .arg("--bpffs")
            .arg(&self.bpffs)
            .args(arguments)
            .output()
            .expect("it starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Doctor {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Brings the loopback device up, with these addresses.
    pub(crate) fn addresses(&self, addresses: &[IpAddr]) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            let mut links = handle.link().get().match_name("lo".to_owned()).execute();
            let index = links.try_next().await.unwrap().expect("lo").header.index;
            let up = rtnetlink::LinkUnspec::new_with_index(index).up().build();
            handle.link().set(up).execute().await.unwrap();
            for address in addresses {
                handle.address().add(index, *address, 32).execute().await.unwrap();
            }
        });
    }
}

/// A server that says its own address, and ends with the test's process.
pub(crate) fn serve(address: SocketAddrV4) {
    let listener = TcpListener::bind(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that is gone has seen enough.
            let _ = stream.and_then(|mut stream| write!(stream, "{address}"));
        }
    });
}

/// Answers every request with a status and a body, as an agent does at `/readyz`.
pub(crate) fn answer(status: u16, body: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|mut stream| {
                // To the end of the request's head: closing with unread bytes would reset the connection.
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte)?;
                    head.extend(byte);
                }
                write!(stream, "HTTP/1.1 {status} X\r\nConnection: close\r\n\r\n{body}")
            });
        }
    });
    address
}

/// Who answers at an address, from this process, which is in the test's cgroup.
pub(crate) fn dial(address: SocketAddrV4) -> io::Result<String> {
    const LIMIT: Duration = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&address.into(), LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}
