//! Registry of the namespaces, processes and directories of this run, which are removed when the run is
//! interrupted by a signal, because destructors do not run in this case. After that, a callback
//! ([`LastWord`]) returns the exit status.
//!
//! ```text
//! SIGINT/SIGTERM ─▶ watcher thread ─▶ kill registered processes ─▶ delete registered namespaces and directories ─▶ last word ─▶ exit
//! ```

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, Once, PoisonError},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::host::{netns, shell};

/// Exit status of an interrupted run without a [`LastWord`] callback; 128 + SIGINT, as in a shell.
const INTERRUPTED: i32 = 130;

/// Callback that runs after the cleanup of an interrupted run, and returns the exit status.
pub type LastWord = Box<dyn FnOnce() -> i32 + Send>;

#[derive(Default)]
struct Registry {
    namespaces: BTreeSet<String>,
    processes: BTreeSet<i32>,
    directories: BTreeSet<PathBuf>,
    last_word: Option<LastWord>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    namespaces: BTreeSet::new(),
    processes: BTreeSet::new(),
    directories: BTreeSet::new(),
    last_word: None,
});

static WATCHER: Once = Once::new();

/// Sets the callback that runs after an interrupted run has removed everything.
pub fn set_last_word(last_word: LastWord) {
    watch_signals();
    lock().last_word = Some(last_word);
}

pub(crate) fn add_namespace(name: &str) {
    watch_signals();
    lock().namespaces.insert(name.to_owned());
}

pub(crate) fn forget_namespace(name: &str) {
    lock().namespaces.remove(name);
}

pub(crate) fn add_process(pid: u32) {
    watch_signals();
    lock().processes.insert(as_pid(pid).as_raw());
}

pub(crate) fn forget_process(pid: u32) {
    lock().processes.remove(&as_pid(pid).as_raw());
}

pub(crate) fn add_directory(path: &Path) {
    watch_signals();
    lock().directories.insert(path.to_owned());
}

pub(crate) fn forget_directory(path: &Path) {
    lock().directories.remove(path);
}

pub(crate) fn as_pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("Linux process ids fit an i32"))
}

fn lock() -> MutexGuard<'static, Registry> {
    // The sets of names stay consistent if another thread panicked while holding the lock.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch_signals() {
    WATCHER.call_once(|| {
        std::thread::Builder::new()
            .name("interrupt".to_owned())
            .spawn(|| {
                if wait_for_signal().is_ok() {
                    std::process::exit(remove_everything());
                }
            })
            .expect("the harness can start a thread");
    });
}

fn wait_for_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        Ok(())
    })
}

fn remove_everything() -> i32 {
    let mut registry = lock();
    for &pid in &registry.processes {
        let _already_gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    for name in &registry.namespaces {
        netns::kill_processes_inside(name);
        let _already_gone = shell::run("ip", &["netns", "delete", name]);
    }
    for path in &registry.directories {
        let _already_gone = fs::remove_dir_all(path);
    }
    let last_word = registry.last_word.take();
    drop(registry);
    last_word.map_or(INTERRUPTED, |say| say())
}
