//! Tests of the command line of `tidegate-agent`: the help texts, error messages that name the flag and the
//! remedy, and the cleanup, which removes all kernel objects of the agent and no others.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

const AGENT: &str = env!("CARGO_BIN_EXE_tidegate-agent");

fn agent(arguments: &[&str]) -> Output {
    // Help shows the values of environment variables, so none may be set.
    Command::new(AGENT).args(arguments).env_clear().output().unwrap()
}

fn check_golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, wanted, "{name} differs; UPDATE_GOLDEN=1 accepts it");
}

#[test]
fn help_reads_as_recorded() {
    for (name, arguments) in [
        ("help.txt", &["--help"][..]),
        ("help-cleanup.txt", &["cleanup", "--help"]),
        ("help-preflight.txt", &["preflight", "--help"]),
    ] {
        let output = agent(arguments);
        assert!(output.status.success());
        check_golden(name, &String::from_utf8(output.stdout).unwrap());
    }
}

#[test]
fn every_bad_setting_is_refused_with_its_flag_and_a_remedy() {
    let cases = [
        ("--api", "ftp://x", "http://127.0.0.1:7440"),
        ("--node", "UP", "lower-case"),
        ("--mode", "turbo", "`nftables`"),
        ("--listen", "nonsense", "127.0.0.1:7441"),
        ("--workload-cidr", "10.0.0.1/8", "10.0.0.0/8"),
        ("--address", "127.0.0.1", "loopback"),
        ("--label", "rack", "rack=r1"),
        ("--label", "rack!=r1", "rack=r1"),
        ("--zone", "Upper", "lower-case"),
        ("--log", "a=b=c", "`info`"),
        ("--config", "/does/not/exist", "cannot read"),
    ];
    for (flag, value, remedy) in cases {
        let output = agent(&[flag, value, "--state-dir", "/does/not/exist"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{flag} {value} must be refused");
        assert!(said.contains(flag) && said.contains(remedy), "{flag} {value}: {said}");
    }
}

/// Network namespace of a test, deleted when dropped.
struct Namespace(String);

impl Namespace {
    fn new() -> Self {
        let namespace = Self(format!("tg-command-{}", std::process::id()));
        namespace.ip(&["netns", "add", &namespace.0]);
        namespace.ip(&["-n", &namespace.0, "link", "set", "lo", "up"]);
        namespace
    }

    fn ip(&self, arguments: &[&str]) {
        assert!(
            Command::new("ip").args(arguments).status().unwrap().success(),
            "{}: ip {arguments:?}",
            self.0
        );
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]).args(arguments);
        command
    }

    fn ruleset(&self) -> String {
        let output = self.command("nft", &["list", "ruleset"]).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }

    fn load(&self, rules: &str) {
        assert!(self.command("nft", &[rules]).status().unwrap().success(), "nft {rules}");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.ip(&["netns", "del", &self.0]);
    }
}

/// Running agent process, killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// F079: a cleanup is rejected while an agent is running. After a cleanup without a running agent, the
/// agent's table is gone and all other tables are unchanged.
#[test]
fn f079_cleanup_waits_for_the_agent_and_leaves_the_tables_of_others() {
    let namespace = Namespace::new();
    let dir = std::env::temp_dir().join(format!("tidegate-command-{}", std::process::id()));
    let state = dir.to_str().unwrap();
    let settings =
        ["--api", "http://127.0.0.1:1", "--node", "n1", "--listen", "127.0.0.1:0", "--state-dir", state];
    namespace.load("add table ip theirs");
    let before = namespace.ruleset();
    namespace.load("add table inet tidegate");

    let child =
        namespace.command(AGENT, &settings).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut running = Running(child);
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.ends_with("ready\n"), "{line}");
    let cleanup = [&["cleanup"][..], &settings].concat();
    let refused = namespace.command(AGENT, &cleanup).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("running agent"), "{said}");
    assert_ne!(namespace.ruleset(), before, "nothing was removed");
    drop(running);

    namespace.load("add table inet tidegate-announce");
    let done = namespace.command(AGENT, &cleanup).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(namespace.ruleset(), before);
    let _may_be_gone = fs::remove_dir_all(&dir);
}
