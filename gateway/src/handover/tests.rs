use std::net::Ipv4Addr;

use model::{cluster::snapshot::Snapshot, http::HttpState};
use tempfile::TempDir;
use tokio::{net::TcpStream, task::JoinHandle};

use super::*;

/// Old process with two listening sockets.
struct OldProcess {
    directory: TempDir,
    sockets: Vec<TcpListener>,
    offer: JoinHandle<io::Result<Successor>>,
}

impl OldProcess {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let (open, mut sockets) = (OpenSockets::default(), Vec::new());
        for _ in 0..2 {
            let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            open.insert(socket.local_addr().unwrap(), &socket);
            sockets.push(socket);
        }
        let state = HttpState::new(Arc::default(), Snapshot::from_objects(Revision(7), Vec::new()));
        let (_, states) = watch::channel(Some(Arc::new(state)));
        let offer = tokio::spawn(async move { offer(&path, &open, &states).await });
        while !directory.path().join(FILE).exists() {
            tokio::task::yield_now().await;
        }
        Self { directory, sockets, offer }
    }

    /// Takes the sockets as a new process does.
    async fn taken(&self) -> (Predecessor, InheritedSockets) {
        let path = self.directory.path().to_owned();
        tokio::task::spawn_blocking(move || take(&path).unwrap().unwrap()).await.unwrap()
    }
}

/// A new process receives the sockets, of which the clients that wait for the old one are accepted, and is ready with a
/// state as new as that of the old one. Then the old process releases the state.
#[tokio::test]
async fn sockets_pass_to_a_new_process() {
    let old = OldProcess::start().await;
    let address = old.sockets[0].local_addr().unwrap();
    let mut client = TcpStream::connect(address).await.unwrap();
    let (predecessor, mut inherited) = old.taken().await;
    assert_eq!(inherited.len(), 2);
    assert_eq!(predecessor.revision, Revision(7));
    let socket = inherited.remove(&address).unwrap();
    socket.set_nonblocking(true).unwrap();
    let (mut accepted, _) = TcpListener::from_std(socket).unwrap().accept().await.unwrap();
    accepted.write_all(b"new").await.unwrap();
    let mut text = [0; 3];
    client.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"new");

    let (opened, is_open) = watch::channel(None);
    let replaced = tokio::spawn(predecessor.replace(is_open));
    opened.send_replace(Some(Revision(6)));
    tokio::task::yield_now().await;
    assert!(!old.offer.is_finished());
    opened.send_replace(Some(Revision(7)));
    let successor = old.offer.await.unwrap().unwrap();
    assert_eq!(successor.pid, rustix::process::getpid());
    assert!(!replaced.is_finished());
    successor.release();
    replaced.await.unwrap().unwrap();
}

/// A new process that ends before it is ready, or sends something else, changes nothing. The next one is served.
#[tokio::test]
async fn a_new_process_that_fails_changes_nothing() {
    let old = OldProcess::start().await;
    drop(old.taken().await);
    for bytes in [&b""[..], b"\x02", b"GET / HTTP/1.1\r\n\r\n", b"\x01X"] {
        let mut stranger = tokio::net::UnixStream::connect(old.directory.path().join(FILE)).await.unwrap();
        stranger.write_all(bytes).await.unwrap();
        stranger.shutdown().await.unwrap();
    }
    let (predecessor, inherited) = old.taken().await;
    assert_eq!(inherited.len(), 2);
    let (_opened, is_open) = watch::channel(Some(Revision(8)));
    let replaced = tokio::spawn(predecessor.replace(is_open));
    old.offer.await.unwrap().unwrap().release();
    replaced.await.unwrap().unwrap();
}

/// A new process that gets no state notices the end of the old one, which others may replace then.
#[tokio::test]
async fn a_new_process_notices_the_end_of_the_old_one() {
    let old = OldProcess::start().await;
    assert!(is_offered(old.directory.path()));
    let (predecessor, _) = old.taken().await;
    let (_opened, is_open) = watch::channel(None);
    let replaced = tokio::spawn(predecessor.replace(is_open));
    old.offer.abort();
    assert!(replaced.await.unwrap().is_err());
    assert!(!is_offered(old.directory.path()));
}

/// Without an old process, and after the end of one, there are no sockets to take.
#[tokio::test]
async fn without_an_old_process_nothing_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    assert!(take(directory.path()).unwrap().is_none());
    drop(UnixListener::bind(directory.path().join(FILE)).unwrap());
    assert!(take(directory.path()).unwrap().is_none());
}

/// Anything but sockets is an error.
#[test]
fn malformed_messages_are_errors() {
    use std::io::Write as _;

    for bytes in [&b""[..], b"S", b"X", b"E\0\0\0"] {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(bytes).unwrap();
        drop(one);
        assert!(message::receive_sockets(&other).is_err(), "{bytes:?}");
    }
    // A descriptor that is no listening socket.
    let (one, other) = UnixStream::pair().unwrap();
    let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    message::send_sockets(&one, &[Arc::new(file)], Revision(1)).unwrap();
    assert!(message::receive_sockets(&other).is_err());
}
