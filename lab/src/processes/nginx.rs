//! nginx as it comes with the distribution, in a place of the lab: as a web server, as an ingress, as a relay of connections.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
};

use anyhow::{Context, Result};

use crate::{
    host::{netns::Namespace, scratch::Scratch, shell},
    processes::process::{Plan, Process},
};

/// Where Debian puts the module for connections that are no HTTP.
const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";
/// Connections that one worker holds at once, both sides of a relayed one counted; the usual limit of files allows them.
const CONNECTIONS_MAX: u32 = 4_096;

/// What an nginx does.
#[derive(Debug, Clone)]
pub enum Serves {
    /// HTTP, by these `server` and `upstream` blocks.
    Http(String),
    /// Connections as they are, by these.
    Connections(String),
}

/// A running nginx; it ends with its guard.
#[derive(Debug)]
pub struct Nginx {
    process: Process,
    _directory: Scratch,
}

impl Nginx {
    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// It is not installed, or refuses its configuration; what it said is in the error.
    pub fn start(namespace: &Namespace, name: &str, serves: &Serves) -> Result<Self> {
        let directory = Scratch::new("nginx")?;
        // Its workers run as somebody else.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
        let path = |name: &str| directory.path().join(name).display().to_string();
        fs::write(path("nginx.conf"), configuration(&directory, serves))?;
        let mut process = Process::start(Plan {
            label: format!("nginx of {name}"),
            namespace: namespace.clone(),
            program: PathBuf::from("nginx"),
            arguments: ["-p", &path(""), "-e", "stderr", "-c", &path("nginx.conf")]
                .map(str::to_owned)
                .to_vec(),
            environment: Vec::new(),
            log: directory.path().join("nginx.log"),
        })?;
        // The file is written when every port is open.
        let pid = directory.path().join("pid");
        process.wait_ready(|| pid.try_exists()?.then_some(()).context("it does not listen yet"))?;
        Ok(Self { process, _directory: directory })
    }

    /// The version that is installed.
    ///
    /// # Errors
    /// None is.
    pub fn version() -> Result<String> {
        // It says so on stderr.
        Ok(shell::run("sh", &["-c", "nginx -v 2>&1"])?.trim().replace("nginx version: ", ""))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Asked, it ends its workers as well; those of one that is killed live as long as their namespace.
        let _already_gone = self.process.terminate();
    }
}

fn configuration(directory: &Scratch, serves: &Serves) -> String {
    let directory = directory.path().display();
    let common = format!(
        "daemon off;\npid {directory}/pid;\nworker_processes auto;\nworker_rlimit_nofile {files};\n\
         events {{ worker_connections {CONNECTIONS_MAX}; }}\n",
        files = 2 * CONNECTIONS_MAX
    );
    match serves {
        Serves::Http(blocks) => {
            let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
            let places = kinds.map(|kind| format!("{kind}_temp_path {directory}/{kind};\n")).concat();
            format!("{common}http {{\naccess_log off;\n{places}{blocks}\n}}\n")
        }
        Serves::Connections(blocks) => {
            format!("load_module {STREAM_MODULE};\n{common}stream {{\n{blocks}\n}}\n")
        }
    }
}
