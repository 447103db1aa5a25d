//! A balancer in this process, and clients of its faults.

use lab::Front;
use lab_apiserver::Pki;
use tokio::net::{TcpListener, TcpStream};

use super::*;

const SERVERS: [u16; 2] = [6443, 6444];
const LONG: Duration = Duration::from_secs(60);

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn order(fault: Fault, lasts: Duration) -> BalancerOrder {
    let pki = Pki::new().expect("an authority");
    let (certificate, key) = pki.server_pem(&["127.0.0.1".to_owned()]).expect("a certificate");
    let keys = Keys {
        authority: pki.ca_pem().to_owned(),
        certificate: certificate.clone(),
        key: key.clone(),
        front_certificate: certificate,
        front_key: key,
    };
    BalancerOrder {
        keys: SERVERS.map(|port| (address(port), keys.clone())).into(),
        servers: vec![address(SERVERS[0])],
        clients: Clients::All,
        fault,
        lasts,
    }
}

fn listen(folder: &tempfile::TempDir) -> (PathBuf, watch::Receiver<Option<Arc<Proxies>>>) {
    let socket = folder.path().join("faults.sock");
    let answers = Arc::new(Answers::default());
    let through = answers.through().now;
    tokio::spawn(answers.listen(&socket).expect("a socket"));
    (socket, through)
}

async fn over(through: &mut watch::Receiver<Option<Arc<Proxies>>>) {
    let over = timeout(LIMITS.control, through.wait_for(Option::is_none)).await;
    drop(over.expect("over in time").expect("it listens"));
}

#[tokio::test]
async fn the_socket_of_a_dead_process_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, _) = listen(&folder);
    drop(Arc::new(Answers::default()).listen(&socket).expect("once more"));
}

#[tokio::test]
async fn a_fault_ends_however_it_does_and_connections_pass_through_proxies_until_the_last_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, mut through) = listen(&folder);
    let first = BalancerFault::ask(&socket, &order(Fault::Expire, LONG))
        .await
        .expect("begun");
    let second = BalancerFault::ask(&socket, &order(Fault::DropEvents, LONG))
        .await
        .expect("begun");
    let proxies = through.borrow().clone().expect("in force");
    assert_eq!(
        proxies.len(),
        SERVERS.len(),
        "for every server, whichever it meets"
    );
    first.end().await.expect("ended");
    assert!(through.borrow().is_some(), "another is in force");
    // As when its keeper is killed.
    drop(second);
    over(&mut through).await;
    let lapsing = order(Fault::Expire, Duration::from_millis(50));
    let third = BalancerFault::ask(&socket, &lapsing).await.expect("begun");
    let again = through.borrow_and_update().clone();
    assert!(
        again.is_none_or(|again| Arc::ptr_eq(&again, &proxies)),
        "connections may be in those"
    );
    over(&mut through).await;
    third.end().await.expect("its time was over");
}

#[tokio::test]
async fn connections_that_pass_are_cut_when_a_fault_begins_and_pass_again_after_it() {
    let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = server.local_addr().expect("an address");
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = server.accept().await.expect("the front");
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                drop(tokio::io::copy(&mut read, &mut write).await);
            });
        }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("faults.sock");
    let answers = Arc::new(Answers::default());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let front_at = listener.local_addr().expect("an address");
    let front = Front::new(listener, Arc::from([at]), None).expect("a front");
    tokio::spawn(front.through(answers.through()).run());
    tokio::spawn(answers.listen(&socket).expect("a socket"));
    // The response to one byte, if any.
    let echo = async |stream: &mut TcpStream| {
        stream.write_all(b"a").await.ok()?;
        let mut byte = [0];
        let read = timeout(LIMITS.control, stream.read_exact(&mut byte)).await;
        read.expect("in time").ok().map(|_| byte[0])
    };
    let connect = async || TcpStream::connect(front_at).await.expect("the front");
    let mut under_way = connect().await;
    assert_eq!(echo(&mut under_way).await, Some(b'a'));
    let mut order = order(Fault::Expire, LONG);
    let (_, keys) = order.keys.pop_first().expect("keys");
    order.keys = BTreeMap::from([(at, keys)]);
    order.servers = vec![at];
    let held = BalancerFault::ask(&socket, &order).await.expect("begun");
    assert_eq!(echo(&mut under_way).await, None, "it is cut");
    let mut later = connect().await;
    later
        .write_all(b"no handshake, at any length")
        .await
        .expect("sent");
    let mut answer = Vec::new();
    let read = timeout(LIMITS.control, later.read_to_end(&mut answer)).await;
    drop(read.expect("in time"));
    assert!(!answer.starts_with(b"no"), "requests pass, not bytes: {answer:?}");
    held.end().await.expect("ended");
    assert_eq!(echo(&mut connect().await).await, Some(b'a'));
}

#[tokio::test]
async fn what_a_proxy_can_not_do_is_refused_and_no_key_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, through) = listen(&folder);
    let refused = async |order: &BalancerOrder| match BalancerFault::ask(&socket, order).await {
        Ok(_) => panic!("it has begun"),
        Err(error) => error.to_string(),
    };
    let why = refused(&order(Fault::Lag, LONG)).await;
    assert!(why.contains("cache"), "{why}");
    let mut unknown = order(Fault::Expire, LONG);
    unknown.servers = vec![address(1)];
    assert!(refused(&unknown).await.contains("no keys of 127.0.0.1:1"));
    let mut broken = order(Fault::Expire, LONG);
    for keys in broken.keys.values_mut() {
        keys.key = "secret".to_owned();
    }
    let why = refused(&broken).await;
    assert!(
        why.contains("the server's key") && !why.contains("secret"),
        "{why}"
    );
    assert!(through.borrow().is_none());
    let mode = fs::metadata(&socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
