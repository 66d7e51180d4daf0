//! `backup`: everything that the server keeps, in a file that is whole or not there. `store`: what the server's own
//! program does with stores, which this one knows nothing of.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Write},
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

use crate::{
    args::backup::{Backup, Store},
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
};

/// Only the owner reads a file with every secret of a cluster.
const MODE: u32 = 0o600;
/// What the last line of a backup begins with.
const END: &[u8] = b"{\"end\":";
/// The program that opens stores.
const PROGRAM: &str = "tidegate-api";

pub(crate) async fn run(
    client: &Client,
    Backup { output, history }: Backup,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let failed = |cause: String| Failure::File { path: output.clone(), cause };
    let opened = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&output);
    let mut file = opened.map_err(|error| failed(error.to_string()))?;
    let request = Request::act("/v1/backup").query("history", history.then_some("true"));
    let taken = client.download(&request, |bytes| file.write_all(bytes)).await;
    let checked = match taken.and_then(|()| Ok(file.sync_all()?)) {
        Ok(()) => check(&output).map_err(failed),
        Err(failure) => Err(failure),
    };
    if let Err(failure) = checked {
        // Half a backup must not be taken for one.
        let _left = fs::remove_file(&output);
        return Err(failure);
    }
    terminal.note("it holds every secret of the cluster in the clear: keep it where only you can read it");
    terminal.print(&format!("{}\n", output.display()))?;
    Ok(ExitCode::Success)
}

/// Whether the last line is there and has the checksum of the others.
fn check(path: &Path) -> Result<(), String> {
    let mut file = BufReader::new(File::open(path).map_err(|error| error.to_string())?);
    let mut digest = Sha256::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        file.read_until(b'\n', &mut line).map_err(|error| error.to_string())?;
        if line.is_empty() {
            return Err("the server ended before the backup was complete; try again".to_owned());
        }
        if line.starts_with(END) {
            break;
        }
        digest.update(&line);
    }
    let sum: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if String::from_utf8_lossy(&line).contains(&format!("\"sha256\":\"{sum}\"")) {
        Ok(())
    } else {
        Err("its checksum does not fit what has arrived; try again".to_owned())
    }
}

/// Becomes `tidegate-api store …`; answers only why it could not.
pub(crate) fn store(Store { arguments }: &Store) -> Failure {
    let program = beside(std::env::current_exe().ok()).unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(&program).arg("store").args(arguments).exec();
    Failure::Usage {
        message: format!("{} cannot be run: {error}", program.display()),
        hint: Some(format!(
            "install {PROGRAM} beside this program or on PATH: stores are opened by the server's program only"
        )),
    }
}

/// The server's program in the directory of this one.
fn beside(own: Option<PathBuf>) -> Option<PathBuf> {
    let path = own?.with_file_name(OsStr::new(PROGRAM));
    path.is_file().then_some(path)
}
