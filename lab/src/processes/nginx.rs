//! nginx from the distribution, running in a namespace of the lab as a web server, an ingress or a TCP relay.

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

/// Debian path of the stream module for TCP and UDP.
const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";
/// Maximum number of connections per worker, within the usual file limit. A relayed connection counts twice:
/// once to the client and once to the server.
const CONNECTIONS_MAX: u32 = 4_096;

/// Use of an nginx instance: web server, or relay of TCP and UDP. Contains the configuration.
#[derive(Debug, Clone)]
pub enum Serves {
    /// Web server. Contains the `server` and `upstream` blocks of its configuration.
    Http(String),
    /// Relay of TCP and UDP streams. Contains the `server` and `upstream` blocks of its configuration.
    Connections(String),
}

/// Running nginx that ends when dropped.
#[derive(Debug)]
pub struct Nginx {
    process: Process,
    _directory: Scratch,
}

impl Nginx {
    /// Starts nginx and waits until it listens.
    ///
    /// # Errors
    /// Returns its output if nginx is not installed or rejects the configuration.
    pub fn start(namespace: &Namespace, name: &str, serves: &Serves) -> Result<Self> {
        let directory = Scratch::new("nginx")?;
        // The workers run as another user.
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
        // nginx writes the file after all ports are open.
        let pid = directory.path().join("pid");
        process.wait_ready(|| pid.try_exists()?.then_some(()).context("not listening yet"))?;
        Ok(Self { process, _directory: directory })
    }

    /// Returns the installed version.
    ///
    /// # Errors
    /// Returns an error if nginx is not installed.
    pub fn version() -> Result<String> {
        // The version is printed to stderr.
        Ok(shell::run("sh", &["-c", "nginx -v 2>&1"])?.trim().replace("nginx version: ", ""))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM ends the workers as well; after SIGKILL they would live as long as their namespace.
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
