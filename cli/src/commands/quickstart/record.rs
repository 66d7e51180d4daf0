//! Record of everything that `quickstart` created on this machine, and the files with fixed names.
//!
//! An entry is saved before the change that it describes, so that an interrupted run can be undone or continued.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use model::primitives::name::Name;
use serde::{Deserialize, Serialize};

use super::host::UnitState;
use crate::{
    commands::context::{failed, write_private},
    error::Failure,
};

/// Directory of the record.
const DIRECTORY: &str = "/var/lib/tidegate";
/// File of the record.
const FILE: &str = "quickstart.json";
/// Kernel parameter that permits the forwarding of IPv4 packets.
pub(super) const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
/// Kernel parameters that change with [`FORWARDING`], which is the first.
const FORWARDING_PARAMETERS: [&str; 2] = [FORWARDING, "/proc/sys/net/ipv4/conf/all/accept_redirects"];
/// File that permits forwarding after the next boot.
pub(super) const FORWARDING_FILE: &str = "/etc/sysctl.d/90-tidegate-quickstart.conf";

/// Everything that `quickstart` created on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct QuickstartRecord {
    /// State of the control server's unit before it was started or enabled.
    pub(super) control: Option<UnitState>,
    /// State of the agent's unit before it was started or enabled.
    pub(super) agent: Option<UnitState>,
    /// Node that the started agent created.
    pub(super) node: Option<Name>,
    /// Values of the kernel parameters before forwarding was permitted.
    pub(super) forwarding: Option<[String; 2]>,
    /// Context with its token.
    pub(super) context: Option<ContextRecord>,
    /// True if the AddressPool and the Advertisement were created.
    pub(super) has_pool: bool,
}

/// Context that `quickstart` created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ContextRecord {
    /// Configuration directory of the user.
    pub(super) directory: PathBuf,
    /// Context that was the current one before.
    pub(super) previous: Option<Name>,
    /// Id of the token.
    pub(super) token_id: String,
}

impl QuickstartRecord {
    /// Loads the record of this machine, which is empty if there is none.
    ///
    /// # Errors
    /// Returns an error if the file is unreadable or malformed.
    pub(super) fn load() -> Result<Self, Failure> {
        let path = Path::new(DIRECTORY).join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| Failure::File {
                path,
                cause: format!("it is no record of quickstart: {error}"),
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(failed(&path, &error)),
        }
    }

    /// Saves the record, or removes its file if it is empty.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn save(&self) -> Result<(), Failure> {
        let path = Path::new(DIRECTORY).join(FILE);
        if *self == Self::default() {
            let _is_absent = fs::remove_file(&path);
            // Fails if others have files there.
            let _is_used = fs::remove_dir(DIRECTORY);
            return Ok(());
        }
        let created = fs::DirBuilder::new().recursive(true).mode(0o755).create(DIRECTORY);
        created.map_err(|error| failed(Path::new(DIRECTORY), &error))?;
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        write_private(&path, &(text + "\n"))
    }
}

/// Returns the values of the kernel parameters of forwarding.
///
/// # Errors
/// Returns an error if one cannot be read.
pub(super) fn forwarding() -> Result<[String; 2], Failure> {
    let read = |path: &str| {
        let text = fs::read_to_string(path).map_err(|error| failed(Path::new(path), &error))?;
        Ok::<_, Failure>(text.trim().to_owned())
    };
    let [main, redirects] = FORWARDING_PARAMETERS;
    Ok([read(main)?, read(redirects)?])
}

/// Permits the forwarding of IPv4 packets, now and after the next boot.
///
/// # Errors
/// Returns an error if a file cannot be written.
pub(super) fn permit_forwarding() -> Result<(), Failure> {
    let text = "# Written by `tidegate quickstart`: the load balancer forwards packets to endpoints on other machines.\n\
                net.ipv4.ip_forward = 1\n";
    fs::write(FORWARDING_FILE, text).map_err(|error| failed(Path::new(FORWARDING_FILE), &error))?;
    fs::write(FORWARDING, "1").map_err(|error| failed(Path::new(FORWARDING), &error))
}

/// Restores the kernel parameters of forwarding.
///
/// # Errors
/// Returns an error if one cannot be written.
pub(super) fn restore_forwarding(values: &[String; 2]) -> Result<(), Failure> {
    if let Err(error) = fs::remove_file(FORWARDING_FILE)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(failed(Path::new(FORWARDING_FILE), &error));
    }
    for (path, value) in FORWARDING_PARAMETERS.iter().zip(values) {
        fs::write(path, value).map_err(|error| failed(Path::new(path), &error))?;
    }
    Ok(())
}
