//! The thread: asleep until a packet, a deadline or the owner.

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
    Shared,
    engine::{Pass, Ready},
    socket::Door,
};

pub(super) fn spawn(shared: Arc<Shared>, wakes: UnixDatagram) -> io::Result<JoinHandle<()>> {
    Builder::new().name("bfd".to_owned()).spawn(move || run(&shared, &wakes))
}

fn run(shared: &Shared, wakes: &UnixDatagram) {
    let mut ready = Ready::new();
    loop {
        let pass = shared.engine().pass(&ready, Instant::now());
        let Pass::Continue { doors, deadline } = pass else { return };
        ready = match sleep(wakes, &doors, deadline) {
            Ok(ready) => ready,
            Err(Errno::EINTR) => Ready::new(),
            Err(errno) => {
                // Nothing but a lack of memory is left to fail with; sessions then fall and say so.
                tracing::error!(%errno, "BFD cannot wait for packets and has stopped");
                return;
            }
        };
        let mut buffer = [0; 1];
        while wakes.recv(&mut buffer).is_ok() {}
    }
}

/// Sleeps until the deadline at most; answers where packets wait.
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
