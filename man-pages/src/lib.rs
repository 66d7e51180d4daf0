//! Man pages and shell completions generated from a command's clap definition, so that they match its
//! `--help`.
//!
//! Every binary has a hidden subcommand that calls [`write()`]; packages contain the result. The output is
//! reproducible: it does not depend on the machine or the environment.

use std::{
    fs,
    io::{Error, Result},
    path::Path,
};

use clap::Command;
use clap_complete::{Generator as _, Shell, generate};
use clap_mangen::Man;

/// Directory of the completions of each shell, below `share` (such as `/usr/share`).
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/vendor-completions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Manual section that a program's pages belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// User commands, section 1.
    User,
    /// System administration commands, section 8.
    Administration,
}

impl Section {
    const fn number(self) -> &'static str {
        match self {
            Self::User => "1",
            Self::Administration => "8",
        }
    }
}

/// Writes a man page for the command and for each of its subcommands, and completions for bash, zsh and fish.
/// `share` is the directory for them, laid out as `/usr/share`.
///
/// # Errors
/// Returns an error naming the file that cannot be written.
pub fn write(command: Command, section: Section, share: &Path) -> Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let pages = share.join(format!("man/man{}", section.number()));
    make_directory(&pages)?;
    write_pages(&command, section, &pages)?;
    let name = command.get_name().to_owned();
    write_completions(&name, share, |shell| {
        let mut script = Vec::new();
        generate(shell, &mut command, &name, &mut script);
        Ok(script)
    })
}

/// Writes the completion scripts of a program for bash, zsh and fish, which `script` returns, below `share`.
///
/// # Errors
/// Returns an error naming the file that cannot be written, or the error of `script`.
pub fn write_completions(
    program: &str,
    share: &Path,
    mut script: impl FnMut(Shell) -> Result<Vec<u8>>,
) -> Result<()> {
    for (shell, directory) in COMPLETIONS {
        let directory = share.join(directory);
        make_directory(&directory)?;
        // The bash loader expects the plain command name as file name.
        let file = if shell == Shell::Bash { program.to_owned() } else { shell.file_name(program) };
        let path = directory.join(file);
        fs::write(&path, script(shell)?).map_err(|error| named(&path, &error))?;
    }
    Ok(())
}

fn write_pages(command: &Command, section: Section, directory: &Path) -> Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_pages(subcommand, section, directory)?;
    }
    let source = format!("tidegate {}", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone()).section(section.number()).source(source).manual("Tidegate");
    page.generate_to(directory).map_err(|error| named(&directory.join(page.get_filename()), &error))?;
    Ok(())
}

fn make_directory(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).map_err(|error| named(directory, &error))
}

fn named(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn example() -> Command {
        Command::new("tide")
            .about("Comes and goes")
            .subcommand(Command::new("ebb").about("Goes").arg(Arg::new("far").long("far")))
            .subcommand(Command::new("secret").hide(true))
    }

    #[test]
    fn every_subcommand_that_is_shown_has_a_page_and_every_shell_a_file_by_its_own_naming() {
        let directory = tempfile::tempdir().unwrap();
        write(example(), Section::Administration, directory.path()).unwrap();
        for file in ["man/man8/tide.8", "man/man8/tide-ebb.8", "bash-completion/completions/tide"] {
            assert!(directory.path().join(file).is_file(), "{file}");
        }
        for file in ["zsh/vendor-completions/_tide", "fish/vendor_completions.d/tide.fish"] {
            assert!(directory.path().join(file).is_file(), "{file}");
        }
        assert_eq!(fs::read_dir(directory.path().join("man/man8")).unwrap().count(), 2);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = write(example(), Section::User, file.path()).unwrap_err();
        assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
    }
}
