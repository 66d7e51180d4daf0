//! Lists of the running kernel's modules, and loading of modules.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// State of a module on the running kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModuleState {
    /// The module is not available for the running kernel.
    Missing,
    /// The module exists as a file and is not loaded.
    Loadable,
    /// The module is built into the kernel.
    BuiltIn,
    /// The module is loaded.
    Loaded,
}

/// Names of the loaded and built-in modules of the running kernel.
#[derive(Debug, Default)]
pub struct Modules {
    loaded: BTreeSet<String>,
    built_in: BTreeSet<String>,
}

impl Modules {
    /// Reads the module lists of the running kernel. A list that cannot be read counts as empty, because a
    /// kernel without module support has no lists.
    #[must_use]
    pub fn of_this_kernel() -> Self {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let release = read(Path::new("/proc/sys/kernel/osrelease"));
        let directory = PathBuf::from("/lib/modules").join(release.trim());
        Self::parse(&read(Path::new("/proc/modules")), &read(&directory.join("modules.builtin")))
    }

    /// Parses the lists of loaded and built-in modules: the contents of `/proc/modules` and
    /// `modules.builtin`.
    #[must_use]
    pub fn parse(loaded: &str, built_in: &str) -> Self {
        let first_word = |line: &str| line.split_whitespace().next().map(str::to_owned);
        let stem = |line: &str| {
            let file = line.rsplit('/').next()?;
            Some(file.split(".ko").next()?.replace('-', "_"))
        };
        Self {
            loaded: loaded.lines().filter_map(first_word).collect(),
            built_in: built_in.lines().filter_map(stem).collect(),
        }
    }

    /// Returns the name with the best state (loaded, built in, loadable, missing) among alternative names of
    /// a module, or `("", Missing)` for an empty list.
    #[must_use]
    pub fn best_of(&self, names: &[&'static str]) -> (&'static str, ModuleState) {
        let states = names.iter().map(|name| (*name, self.state(name)));
        // Among equals the first: the name used by recent kernels.
        states.rev().max_by_key(|(_, state)| *state).unwrap_or(("", ModuleState::Missing))
    }

    fn state(&self, name: &str) -> ModuleState {
        if self.loaded.contains(name) {
            return ModuleState::Loaded;
        }
        // Built-in modules with parameters are listed here as well.
        if self.built_in.contains(name) || Path::new("/sys/module").join(name).exists() {
            return ModuleState::BuiltIn;
        }
        let dry_run = modprobe(&["-n", "-q", name]);
        if dry_run.is_ok() { ModuleState::Loadable } else { ModuleState::Missing }
    }

    /// Loads a module with `modprobe`.
    ///
    /// # Errors
    ///
    /// Returns the error message of `modprobe`.
    pub fn load(&self, name: &str) -> Result<(), String> {
        modprobe(&[name]).map_err(|said| format!("modprobe {name}: {said}"))
    }
}

fn modprobe(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("modprobe").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_the_kernel_are_understood_and_the_best_name_wins() {
        let modules = Modules::parse(
            "nf_conntrack 172032 5 nf_nat, Live 0x0\nip_vs_rr 16384 0 - Live 0x0\n",
            "kernel/net/netfilter/ipvs/ip_vs.ko\nkernel/net/netfilter/nf-weird.ko.xz\n",
        );
        assert_eq!(modules.state("ip_vs_rr"), ModuleState::Loaded);
        assert_eq!(modules.state("ip_vs"), ModuleState::BuiltIn);
        assert_eq!(modules.state("nf_weird"), ModuleState::BuiltIn);
        assert_eq!(modules.state("no_such_module_anywhere"), ModuleState::Missing);
        let either = ["nf_conntrack", "nf_conntrack_ipv4"];
        assert_eq!(modules.best_of(&either), ("nf_conntrack", ModuleState::Loaded));
        let older = Modules::parse("nf_conntrack_ipv4 16384 5 - Live 0x0\n", "");
        assert_eq!(older.best_of(&either), ("nf_conntrack_ipv4", ModuleState::Loaded));
        assert_eq!(modules.best_of(&[]), ("", ModuleState::Missing));
    }
}
