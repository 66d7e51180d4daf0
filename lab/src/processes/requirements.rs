//! Requirements of the lab on the machine that runs it.

use std::path::Path;

use anyhow::{Result, bail, ensure};

use crate::processes::binaries;

/// Programs of other packages that the lab starts, with the Debian package that has each.
const TOOLS: [(&str, &str); 3] = [("ip", "iproute2"), ("nft", "nftables"), ("sh", "dash")];
/// Directories with the programs of the administrator, which are not in the search path of every shell.
const DIRECTORIES: [&str; 5] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin"];

/// Checks that the process is root, and that the programs started by the lab exist.
///
/// # Errors
/// Returns an error with the remedy for the first requirement that is not met.
pub fn check() -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "the lab creates network namespaces, which needs root: run it with sudo"
    );
    for (tool, package) in TOOLS {
        if !is_installed(tool) {
            bail!("`{tool}` is missing: apt-get install {package}");
        }
    }
    for program in ["tidegate", "tidegate-api", "tidegate-agent"] {
        binaries::find(program)?;
    }
    Ok(())
}

fn is_installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let of_path = std::env::split_paths(&path);
    of_path
        .chain(DIRECTORIES.iter().map(|name| Path::new(name).to_owned()))
        .any(|directory| directory.join(tool).is_file())
}

#[cfg(test)]
mod tests {
    use super::is_installed;

    #[test]
    fn a_missing_tool_is_found_missing() {
        assert!(is_installed("sh"));
        assert!(!is_installed("no-such-tool"));
    }
}
