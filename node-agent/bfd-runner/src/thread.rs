//! BFD thread: sleeps until a packet arrives, a deadline is reached, or a handle wakes it.

use std::{
    io,
    net::UdpSocket,
    os::{fd::AsFd, unix::net::UnixDatagram},
    sync::Arc,
    thread::{Builder, JoinHandle},
    time::Instant,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::time::TimeSpec,
};

use super::{
    RunnerShared,
    engine::{Pass, Ready},
    socket::Door,
};

pub(super) fn spawn(shared: Arc<RunnerShared>, wakes: UnixDatagram) -> io::Result<JoinHandle<()>> {
    Builder::new().name("bfd".to_owned()).spawn(move || run(&shared, &wakes))
}

fn run(shared: &RunnerShared, wakes: &UnixDatagram) {
    let mut ready = Ready::new();
    loop {
        let pass = shared.engine().pass(&ready, Instant::now());
        let Pass::Continue { doors, deadline } = pass else { return };
        ready = match sleep(wakes, &doors, deadline) {
            Ok(ready) => ready,
            Err(Errno::EINTR) => Ready::new(),
            Err(errno) => {
                // Only a lack of memory can cause this. Sessions then go down and peers are informed by their
                // detection time.
                tracing::error!(%errno, "cannot poll BFD sockets; BFD has stopped");
                return;
            }
        };
        let mut buffer = [0; 1];
        while wakes.recv(&mut buffer).is_ok() {}
    }
}

/// Sleeps until a packet arrives, a handle wakes the thread, or the deadline is reached. Returns the
/// listening sockets that have packets to read.
fn sleep(
    wakes: &UnixDatagram,
    doors: &[(Door, Arc<UdpSocket>)],
    deadline: Option<Instant>,
) -> Result<Ready, Errno> {
    let mut fds = vec![PollFd::new(wakes.as_fd(), PollFlags::POLLIN)];
    fds.extend(doors.iter().map(|(_, socket)| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
    let timeout = deadline.map(|deadline| TimeSpec::from(deadline.saturating_duration_since(Instant::now())));
    ppoll(&mut fds, timeout, None)?;
    let woken = doors.iter().zip(&fds[1..]).filter(|(_, fd)| fd.any().unwrap_or(true));
    Ok(woken.map(|((door, socket), _)| (*door, Arc::clone(socket))).collect())
}
