//! `pods/exec`: a program in a container, its streams as channels of a WebSocket.

use std::{sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use futures::{
    Sink, SinkExt, Stream, StreamExt,
    stream::{SplitSink, SplitStream},
};
use hyper::{Request, Response, upgrade::OnUpgrade};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::interval,
};
use tokio_tungstenite::tungstenite::{
    Error, Message, Utf8Bytes,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

use super::{
    Api, PodRequest, container_name, on_node, refused,
    socket::{self, CLOSE, ERROR, STDERR, STDIN, STDOUT, Socket},
};
use crate::{
    http::{Sent, query::Query},
    kubelet::{Container, ExecRequest, Kubelet, KubeletError, Process},
    respond::Body,
    status::Status,
};

/// A session lasts no longer; upstream's kubelet ends idle ones after this time.
const LONGEST_SESSION: Duration = Duration::from_secs(4 * 3600);
/// Most output in one message.
const PIECE: usize = 32 << 10;
/// Interval of pings, by which a client that is gone is noticed even while the program does not read its input.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Limit for the client to close the session too.
const GOODBYE: Duration = Duration::from_secs(5);

impl Api {
    pub(super) fn exec(
        &self,
        asked: &PodRequest,
        query: &Query,
        mut request: Request<Sent>,
    ) -> Result<Response<Body>, Status> {
        let pod = self.pod(&asked.namespace, &asked.name)?;
        let name = container_name(&pod.value, query.get("container"))?;
        let pod = on_node(&pod.value).ok_or_else(|| {
            Status::bad_request(format!("pod {} does not have a host assigned", asked.name))
        })?;
        let kubelet = self.kubelet(&pod)?;
        let wanted = wanted(query)?;
        let response = socket::accept(request.headers())?;
        let permit = Arc::clone(&self.sessions).try_acquire_owned();
        let permit = permit.map_err(|_| Status::too_many_requests())?;
        let upgrade = hyper::upgrade::on(&mut request);
        let ended = self.ended.clone();
        let container = Container { pod, name };
        tokio::spawn(async move {
            let session =
                tokio::time::timeout(LONGEST_SESSION, session(upgrade, &*kubelet, &container, &wanted));
            tokio::select! {
                () = ended.cancelled() => {}
                // The client has got the result, or is gone.
                _ = session => {}
            }
            drop(permit);
        });
        Ok(response)
    }
}

fn wanted(query: &Query) -> Result<ExecRequest, Status> {
    if query.flag("tty") {
        return Err(Status::bad_request("expected no terminal; leave -t out"));
    }
    let request = ExecRequest {
        command: query.all("command"),
        stdin: query.flag("stdin"),
        stdout: query.flag("stdout"),
        stderr: query.flag("stderr"),
    };
    if !(request.stdin || request.stdout || request.stderr) {
        return Err(Status::bad_request(
            "you must specify at least 1 of stdin, stdout, stderr",
        ));
    }
    if request.command.is_empty() {
        return Err(Status::bad_request("expected a command"));
    }
    Ok(request)
}

async fn session(
    upgrade: OnUpgrade,
    kubelet: &dyn Kubelet,
    container: &Container,
    wanted: &ExecRequest,
) -> Result<(), Error> {
    let upgraded = match upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => {
            tracing::debug!(%error, "failed to upgrade a connection for exec");
            return Ok(());
        }
    };
    let (mut sink, mut stream) = socket::open(upgraded).await.split();
    // An empty message on the first channel tells kubectl that the session is open.
    let first = [(wanted.stdout, STDOUT), (wanted.stderr, STDERR)]
        .into_iter()
        .find(|(wanted, _)| *wanted);
    sink.send(message(first.map_or(ERROR, |(_, channel)| channel), &[]))
        .await?;
    let last = match kubelet.exec(container, wanted).await {
        Ok(process) => {
            let Process {
                stdin,
                stdout,
                stderr,
                ended,
            } = process;
            tokio::select! {
                code = output(&mut sink, stdout, stderr, ended) => ending(code?, container),
                // The client is gone; dropping the rest ends the program.
                gone = input(&mut stream, stdin) => return gone,
            }
        }
        Err(error) => ending(Err(error), container),
    };
    sink.send(message(ERROR, last.to_string().as_bytes())).await?;
    goodbye(sink, stream).await
}

/// Closes the session, and waits until the client has done so too.
async fn goodbye(mut sink: SplitSink<Socket, Message>, mut stream: SplitStream<Socket>) -> Result<(), Error> {
    let frame = CloseFrame {
        code: CloseCode::Normal,
        reason: Utf8Bytes::default(),
    };
    sink.send(Message::Close(Some(frame))).await?;
    let read = async { while let Some(Ok(_)) = stream.next().await {} };
    // A client that does not close in time is cut off.
    let _answered = tokio::time::timeout(GOODBYE, read).await;
    Ok(())
}

fn message(channel: u8, text: &[u8]) -> Message {
    let mut bytes = BytesMut::with_capacity(1 + text.len());
    bytes.put_u8(channel);
    bytes.put_slice(text);
    Message::Binary(bytes.freeze())
}

/// The last message on the error channel.
fn ending(code: Result<i32, KubeletError>, container: &Container) -> Value {
    match code {
        Ok(0) => json!({"metadata": {}, "status": "Success"}),
        Ok(code) => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Err(error) => refused(&error, container).to_json(),
    }
}

type Reader = Option<Box<dyn AsyncRead + Send + Unpin>>;

/// Sends the program's output until it has ended. Returns its exit code.
///
/// # Errors
/// The client is gone.
async fn output(
    sink: &mut (impl Sink<Message, Error = Error> + Unpin),
    mut stdout: Reader,
    mut stderr: Reader,
    mut ended: impl Future<Output = Result<i32, KubeletError>> + Unpin,
) -> Result<Result<i32, KubeletError>, Error> {
    let (mut one, mut two) = (BytesMut::new(), BytesMut::new());
    let mut heartbeat = interval(HEARTBEAT);
    loop {
        let written_all = stdout.is_none() && stderr.is_none();
        let (channel, piece) = tokio::select! {
            piece = piece(&mut stdout, &mut one) => (STDOUT, piece),
            piece = piece(&mut stderr, &mut two) => (STDERR, piece),
            code = &mut ended, if written_all => return Ok(code),
            _ = heartbeat.tick() => {
                sink.send(Message::Ping(Bytes::new())).await?;
                continue;
            }
        };
        match piece {
            Some(piece) => sink.send(message(channel, &piece)).await?,
            None if channel == STDOUT => stdout = None,
            None => stderr = None,
        }
    }
}

/// The next output; `None` at its end. Pending forever without a stream.
async fn piece(reader: &mut Reader, buffer: &mut BytesMut) -> Option<Bytes> {
    let Some(reader) = reader else {
        return std::future::pending().await;
    };
    buffer.reserve(PIECE);
    match reader.read_buf(&mut buffer.limit(PIECE)).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(buffer.split().freeze()),
    }
}

/// Forwards the client's input until it is gone.
async fn input(
    stream: &mut (impl Stream<Item = Result<Message, Error>> + Unpin),
    mut stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
) -> Result<(), Error> {
    while let Some(message) = stream.next().await {
        let Message::Binary(data) = message? else {
            continue;
        };
        match (data.first().copied(), &mut stdin) {
            (Some(STDIN), Some(writer)) => {
                let written = async { writer.write_all(&data[1..]).await.and(writer.flush().await) };
                if written.await.is_err() {
                    // The program no longer reads its input, but still runs.
                    stdin = None;
                }
            }
            (Some(CLOSE), Some(_)) if data.get(1) == Some(&STDIN) => stdin = None,
            _ => {}
        }
    }
    Ok(())
}
