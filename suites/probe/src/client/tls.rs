//! HTTPS to a server that is no probe server, such as an API server: the identity is the names in its certificate.
//!
//! The client does not verify the certificate's issuer: it records the names, and the checkers judge them. The
//! handshake proves that the server has the certificate's key.

use std::{
    collections::VecDeque,
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use oracle::history::Answer;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::net::TcpStream;

use crate::{http, wire};

/// A path that every API server answers, for all users.
const PATH: &str = "/version";
/// Size of one read in bytes.
const READ: usize = 2048;

/// A connection with TLS.
pub(super) struct Tls {
    stream: TcpStream,
    destination: SocketAddr,
    /// Names of the certificate.
    names: String,
    state: Mutex<State>,
}

struct State {
    connection: ClientConnection,
    /// Nonces of requests without an answer, oldest first: HTTP/1.1 answers in order. Bounded by the exchanges under
    /// way.
    requested: VecDeque<String>,
}

impl Tls {
    /// The handshake on an open connection.
    pub(super) async fn shake_hands(stream: TcpStream, destination: SocketAddr) -> io::Result<Self> {
        let config = CONFIG.clone().map_err(io::Error::other)?;
        let name = ServerName::IpAddress(destination.ip().into());
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut tls = Self {
            stream,
            destination,
            names: String::new(),
            state: Mutex::new(State {
                connection,
                requested: VecDeque::new(),
            }),
        };
        loop {
            tls.flush().await?;
            if !tls.state().connection.is_handshaking() {
                break;
            }
            tls.read().await?;
        }
        let names = certified_names(&tls.state().connection)?;
        tls.names = names;
        Ok(tls)
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// The request for a nonce. It does not contain the nonce: answers come in order.
    pub(super) fn request(&self, nonce: &str, keep: bool) -> Vec<u8> {
        self.state().requested.push_back(nonce.to_owned());
        http::get(PATH, keep, self.destination)
    }

    /// Sends a whole message. If it is cancelled, the rest is sent with the next send or receive.
    pub(super) async fn send(&self, message: &[u8]) -> io::Result<usize> {
        // The library buffers it whole: its buffer is larger than the requests under way.
        let taken = self.state().connection.writer().write(message)?;
        self.flush().await?;
        Ok(taken)
    }

    /// The next answer, as a probe server would have written it.
    pub(super) async fn receive(&self, begun: &mut Vec<u8>) -> io::Result<(Vec<u8>, SocketAddr)> {
        loop {
            if let Some(body) = http::take_any_body(begun) {
                return Ok((self.answer(body)?, self.stream.peer_addr()?));
            }
            self.flush().await?;
            self.read().await?;
            let mut buffer = [0; READ];
            let read = match self.state().connection.reader().read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                read => read?,
            };
            begun.extend_from_slice(&buffer[..read]);
        }
    }

    fn answer(&self, body: Vec<u8>) -> io::Result<Vec<u8>> {
        let nonce = self.state().requested.pop_front();
        if !body.starts_with(b"{") {
            // Not an API server's answer: reported as it is.
            return Ok(body);
        }
        Ok(wire::line(&Answer {
            identity: format!("{}/TCP/{}", self.names, self.destination.port()),
            source: self.local_addr()?,
            destination: self.destination,
            nonce: nonce.unwrap_or_default(),
            pod: None,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the library's pending bytes.
    async fn flush(&self) -> io::Result<()> {
        while self.state().connection.wants_write() {
            self.stream.writable().await?;
            match self.state().connection.write_tls(&mut Bare(&self.stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => drop(sent?),
            }
        }
        Ok(())
    }

    /// Waits for bytes, and passes them to the library.
    async fn read(&self) -> io::Result<()> {
        loop {
            if !self.state().connection.wants_read() {
                // Decrypted bytes are not read yet.
                return Ok(());
            }
            self.stream.readable().await?;
            let mut state = self.state();
            match state.connection.read_tls(&mut Bare(&self.stream)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    let processed = state.connection.process_new_packets();
                    processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                    return Ok(());
                }
            }
        }
    }
}

/// The socket as the library expects it, with `WouldBlock` errors.
struct Bare<'a>(&'a TcpStream);

impl io::Read for Bare<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl io::Write for Bare<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.try_write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// DNS names that the server's certificate is valid for, in its order.
fn certified_names(connection: &ClientConnection) -> io::Result<String> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let certificate = connection.peer_certificates().and_then(|all| all.first());
    let certificate = certificate.ok_or_else(|| invalid("no certificate".to_owned()))?;
    let certificate =
        webpki::EndEntityCert::try_from(certificate).map_err(|error| invalid(error.to_string()))?;
    let names: Vec<&str> = certificate.valid_dns_names().collect();
    Ok(names.join(","))
}

/// One configuration for the process. Sessions are not resumed: a resumed session shows no certificate.
static CONFIG: LazyLock<Result<Arc<ClientConfig>, Error>> = LazyLock::new(|| {
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
});

/// Takes any certificate whose key the server has.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
