//! The node: addresses at its loopback device, servers, and the doctor.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    path::PathBuf,
    process::Command,
    thread,
};

use doctor::{explain::Explanation, report::Report};
use futures::TryStreamExt as _;
use nix::pty::openpty;
use testing::patience::LIMIT;

/// A test's node.
pub(crate) struct Node {
    pub(crate) cgroup: PathBuf,
    pub(crate) bpffs: PathBuf,
}

/// Output of a run of the doctor.
#[derive(Debug)]
pub(crate) struct Doctor {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Output of a run on a terminal.
#[derive(Debug)]
pub(crate) struct OnTerminal {
    pub(crate) code: Option<i32>,
    /// Everything shown, including the typed answer.
    pub(crate) shown: String,
}

/// The end of the question.
const QUESTION: &str = "? [y/N] ";

impl Doctor {
    /// Stdout with all white space as single blanks, so that line breaks of paragraphs do not matter.
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

    /// Runs `plumbline doctor` on this node alone: tests share the kernel.
    pub(crate) fn doctor(&self, arguments: &[&str]) -> Doctor {
        let output = self.command(arguments).output().expect("it starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Doctor {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Runs the doctor on a terminal, and types an answer to its question.
    pub(crate) fn doctor_asks(&self, arguments: &[&str], answer: &str) -> OnTerminal {
        let terminal = openpty(None, None).expect("a terminal");
        let stdio = || terminal.slave.try_clone().expect("a descriptor");
        let mut child = self
            .command(arguments)
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .expect("it starts");
        // The child alone has the terminal now, so the terminal ends with it.
        drop(terminal.slave);
        let mut keyboard = File::from(terminal.master);
        let mut shown = String::new();
        let mut byte = [0];
        while !shown.ends_with(QUESTION) {
            keyboard
                .read_exact(&mut byte)
                .unwrap_or_else(|error| panic!("it does not ask: {error}: {shown}"));
            shown.push(byte[0].into());
        }
        keyboard.write_all(answer.as_bytes()).expect("typed");
        // EIO: no process has the terminal open any more.
        while keyboard.read_exact(&mut byte).is_ok() {
            shown.push(byte[0].into());
        }
        let code = child.wait().expect("a child").code();
        OnTerminal { code, shown }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let (subcommand, arguments) = match arguments {
            ["explain", rest @ ..] => (&["explain"][..], rest),
            _ => (&[][..], arguments),
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumbline"));
        command
            .arg("doctor")
            .args(subcommand)
            .arg("--below")
            .arg(&self.cgroup)
            .arg("--bpffs")
            .arg(&self.bpffs)
            .args(arguments);
        command
    }

    /// Makes pairs of devices, and returns the names of one end of each; they are deleted with the network namespace.
    pub(crate) fn pairs(&self, prefix: &str, count: u32) -> Vec<String> {
        let names: Vec<String> = (0..count).map(|number| format!("{prefix}{number}")).collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            for name in &names {
                let pair = rtnetlink::LinkVeth::new(name, &format!("{name}p")).build();
                handle.link().add(pair).execute().await.unwrap();
            }
        });
        names
    }

    /// Sets the loopback device up, with these addresses.
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

/// A server that answers with its own address, and ends with the test's process.
pub(crate) fn serve(address: SocketAddrV4) {
    let listener = TcpListener::bind(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            // The client may close the connection early.
            let _ = stream.and_then(|mut stream| write!(stream, "{address}"));
        }
    });
}

/// Answers every request with a status and a body, like an agent's `/readyz`.
pub(crate) fn answer(status: u16, body: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|mut stream| {
                // Reads to the end of the request's head: closing with unread bytes would reset the connection.
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

/// The answer of the server at an address, to this process, which is in the test's cgroup.
pub(crate) fn dial(address: SocketAddrV4) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address.into(), LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}
