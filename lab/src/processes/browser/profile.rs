//! Command line and environment of Chromium, and cleanup of its processes.

use std::{fs, path::Path};

use fantoccini::wd::Capabilities;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use super::Look;

/// Flags that disable background requests and system-dependent rendering. The sandbox is disabled because it
/// does not work for root; this is safe, because only the page under test is ever opened.
const FLAGS: [&str; 14] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    // Screenshots from different machines are compared.
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
];

/// Returns the WebDriver capabilities of a new browser session with this profile directory and these window
/// settings.
pub(super) fn capabilities(profile: &Path, look: Look) -> Capabilities {
    let mut arguments: Vec<String> = FLAGS.iter().map(|&flag| flag.to_owned()).collect();
    arguments.push(format!("--user-data-dir={}", profile.join("profile").display()));
    arguments.push(format!("--window-size={},{}", look.width, look.height));
    let mut capabilities = Capabilities::new();
    capabilities.insert("goog:chromeOptions".to_owned(), json!({"args": arguments}));
    capabilities.insert("goog:loggingPrefs".to_owned(), json!({"browser": "ALL"}));
    capabilities
}

/// Returns the environment variables that redirect caches and settings of the browser away from the home
/// directory.
pub(super) fn environment(profile: &Path) -> Vec<(String, String)> {
    let home = profile.display().to_string();
    ["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR"]
        .into_iter()
        .map(|name| (name.to_owned(), home.clone()))
        .collect()
}

/// Kills all processes that use a profile directory of this run. A killed driver would leave its browser
/// running.
pub(super) fn kill_users_of(profile: &Path) {
    let wanted = profile.display().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command).contains(&wanted) {
            let _already_gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}
