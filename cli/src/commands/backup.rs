//! `backup`: downloads the server's store into a file that is either complete or absent. `store`: runs
//! `tidegate-api store`, because only the server program opens stores.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Write},
    iter,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use sha2::{Digest, Sha256};

use crate::{
    args::backup::{Backup, Store},
    client::{Client, Request},
    commands::programs,
    error::{ExitCode, Failure},
    output::Terminal,
};

/// File mode of a backup: readable by its owner only, because it contains all secrets of the cluster.
const MODE: u32 = 0o600;
/// Prefix of the last line of a backup.
const END: &[u8] = b"{\"end\":";
/// Name of the server program, which runs the `store` subcommands.
const PROGRAM: &str = "tidegate-api";

pub(crate) async fn run(
    client: &Client,
    Backup { file, output, history }: Backup,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Some(output) = file.or(output) else {
        return Err(Failure::usage("the name of the file is missing", "write `tidegate backup FILE`"));
    };
    let failed = |cause: String| Failure::File { path: output.clone(), cause };
    let opened = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&output);
    let mut file = opened.map_err(|error| failed(error.to_string()))?;
    let request = Request::post("/v1/backup").query("history", history.then_some("true"));
    let taken = client.download(&request, |bytes| file.write_all(bytes)).await;
    let checked = match taken.and_then(|()| Ok(file.sync_all()?)) {
        Ok(()) => check(&output).map_err(failed),
        Err(failure) => Err(failure),
    };
    if let Err(failure) = checked {
        // An incomplete backup must not be mistaken for a complete one.
        let _left = fs::remove_file(&output);
        return Err(failure);
    }
    terminal.note(
        "the file contains all secrets of the cluster unencrypted: keep it where only you can \
                   read it",
    );
    terminal.print(&format!("{}\n", output.display()))?;
    Ok(ExitCode::Success)
}

/// Verifies that a backup file is complete: its last line contains the checksum of all lines before.
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
        Err("the checksum does not match the received data; try again".to_owned())
    }
}

/// Replaces this process with `tidegate-api store …`. Returns only if that fails.
pub(crate) fn store(Store { arguments }: &Store) -> Failure {
    let arguments = iter::once("store".into()).chain(arguments.iter().cloned());
    programs::replace_process(PROGRAM, arguments, "only the server program can open stores")
}
