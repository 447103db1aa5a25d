//! HTTPS to servers that are no probe servers: the identity is the names in a certificate whose key the server has.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use crate::common::{Sink, entry, one, server};
use oracle::history::{Attempt, Outcome, Stage, Transport};
use probe::serve::Mode;
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

/// Names in a certificate.
const NAMES: [&str; 2] = ["kubernetes", "kubernetes.default.svc"];

/// Presents a certificate, with or without its key.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesServerCert for Shows {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// Configuration of a server with a certificate for [`NAMES`] and an address.
fn settings(has_its_key: bool) -> Arc<ServerConfig> {
    let mut names: Vec<String> = NAMES.map(str::to_owned).into();
    names.push("127.0.0.1".to_owned());
    let certified = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let key = if has_its_key {
        certified.signing_key.serialize_der()
    } else {
        rcgen::KeyPair::generate().expect("a key").serialize_der()
    };
    let provider = Arc::new(ring::default_provider());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
    let key = provider.key_provider.load_private_key(key).expect("a key");
    let shown = CertifiedKey::new(vec![certified.cert.der().clone()], key);
    let settings = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Shows(Arc::new(shown))));
    Arc::new(settings)
}

/// One attempt to a server that handles its connection like this.
async fn attempt(serve: impl FnOnce(TcpStream) -> io::Result<()> + Send + 'static, limit_ms: u64) -> Attempt {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        // A client that has its result closes the connection.
        drop(serve(stream));
    });
    let mut entry = entry(Transport::Tls, address);
    entry.limit_ms = limit_ms;
    let attempt = one(entry).await;
    server.join().expect("it does not panic");
    attempt
}

/// Completes the handshake, reads one request, and answers it like this.
fn answers(
    has_its_key: bool,
    status: &'static str,
    body: &'static str,
) -> impl FnOnce(TcpStream) -> io::Result<()> + Send {
    let settings = settings(has_its_key);
    move |stream| {
        let connection = ServerConnection::new(settings).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(connection, stream);
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            request.extend(byte);
        }
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}"
        )?;
        stream.flush()
    }
}

/// Far longer than anything here takes.
const PATIENT: u64 = 10_000;

fn expect_no_handshake(attempt: &Attempt) {
    assert!(
        matches!(
            attempt.outcome,
            Outcome::Failed {
                stage: Stage::Tls,
                ..
            }
        ),
        "{attempt:?}"
    );
}

#[tokio::test]
async fn who_answers_is_the_names_of_the_certificate_and_the_port_that_was_dialled() {
    for status in ["200 OK", "401 Unauthorized"] {
        let attempt = attempt(answers(true, status, "{}"), PATIENT).await;
        let Outcome::Answered { answer, peer } = &attempt.outcome else {
            panic!("{status}: {attempt:?}")
        };
        let SocketAddr::V4(to) = peer else {
            panic!("an IPv4 server")
        };
        let expected = format!("kubernetes,kubernetes.default.svc/TCP/{}", to.port());
        assert_eq!(answer.identity, expected);
        assert_eq!((answer.destination, &answer.nonce), (*peer, &attempt.nonce));
        assert_eq!(answer.pod, None);
    }
}

#[tokio::test]
async fn a_server_without_the_key_of_its_certificate_has_no_identity() {
    let attempt = attempt(answers(false, "200 OK", "{}"), PATIENT).await;
    expect_no_handshake(&attempt);
}

#[tokio::test]
async fn what_is_no_answer_of_an_api_server_is_reported_as_it_is() {
    let attempt = attempt(answers(true, "200 OK", "hello"), PATIENT).await;
    assert_eq!(
        attempt.outcome,
        Outcome::Garbled {
            said: "hello".to_owned()
        }
    );
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_or_closes_fails_in_the_handshake() {
    let speaks = |mut stream: TcpStream| stream.write_all(b"SSH-2.0-OpenSSH\r\n");
    let (port, _) = server(Mode::HalfClose, "b1", "127.0.0.1", &Sink::default()).await;
    let to_closing = entry(Transport::Tls, (Ipv4Addr::LOCALHOST, port).into());
    for attempt in [attempt(speaks, PATIENT).await, one(to_closing).await] {
        expect_no_handshake(&attempt);
    }
}

#[tokio::test]
async fn a_silent_server_runs_into_the_limit_in_the_handshake() {
    // Until the client closes the connection.
    let waits = |mut stream: TcpStream| stream.read_to_end(&mut Vec::new()).map(drop);
    let attempt = attempt(waits, 50).await;
    assert_eq!(attempt.outcome, Outcome::Timeout { stage: Stage::Tls });
}
