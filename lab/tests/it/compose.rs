//! Test of the lab in `compose.yaml` on a real Docker engine: runs each command of its guide and compares the
//! output with the documented one.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::{Command, Output},
};

use anyhow::{Result, ensure};
use lab::{
    host::{netns::Namespace, wait},
    processes::{binaries, engine::Engine},
};

/// Number of consecutive connections that must all reach the expected backend.
const CONNECTIONS: usize = 20;
const BY_ARP: &str = "10.77.0.200";
const BY_BGP: &str = "198.51.100.10";

/// A command of the guide with its documented output lines.
struct Step {
    command: String,
    said: Vec<String>,
}

/// F017, F027: in a namespace without external routes, every command of the guide
/// (`docs/tutorials/docker-compose-lab.md`) prints its documented output. The client and the router have
/// resolved the announced address, a stopped backend receives no connection, and the last command leaves
/// nothing in the engine.
#[test]
fn f017_f027_the_guide_of_the_compose_lab_holds_on_a_real_engine_without_a_way_out() {
    let namespace = Namespace::new("compose").unwrap();
    let engine = Engine::start(&namespace).unwrap();
    assert_eq!(ways_out(&namespace), "", "a default route, and with it a way to a registry");
    assert_eq!(left(&engine), "", "the engine has nothing yet");
    assert_eq!(engine.docker(&["images", "--quiet"]).unwrap(), "");

    let guide = std::fs::read_to_string(root().join("docs/tutorials/docker-compose-lab.md")).unwrap();
    let old_command = engine.docker(&["compose", "version"]).is_err();
    let lab = Lab { engine: &engine, old_command };
    let mut seen = BTreeSet::new();
    for step in steps(&guide) {
        lab.carry_out(&step);
        match step.command.as_str() {
            "docker compose exec control tidegate get services web -o wide" => lab.only_backend_3_answers(),
            "docker compose kill node-1" => lab.node_2_answers_by_arp(),
            _ => {}
        }
        seen.insert(step.command);
    }
    for command in [
        "docker compose exec control tidegate get services web -o wide",
        "docker compose kill node-1",
        "docker compose down --volumes",
    ] {
        assert!(seen.contains(command), "the guide has no `{command}`");
    }
    assert_eq!(left(&engine), "", "what `down` leaves");
    assert_eq!(ways_out(&namespace), "");
}

struct Lab<'a> {
    engine: &'a Engine,
    /// True if Compose is installed as the separate command `docker-compose` (before version 2).
    old_command: bool,
}

impl Lab<'_> {
    /// Runs the command of a step repeatedly until it prints the documented output, or once if none is
    /// documented.
    fn carry_out(&self, step: &Step) {
        if step.said.is_empty() {
            let output = self.run(&step.command).unwrap();
            assert!(output.status.success(), "`{}`: {}", step.command, text(&output));
            return;
        }
        wait::until(&format!("`{}` to say what the guide says", step.command), || {
            let output = self.run(&step.command)?;
            let said = text(&output);
            ensure!(output.status.success(), "{said}");
            for line in &step.said {
                ensure!(said.lines().any(|found| is_like(found, line)), "no line is like `{line}`:\n{said}");
            }
            Ok(())
        })
        .unwrap();
    }

    fn run(&self, line: &str) -> Result<Output> {
        let line = line.replace("docker compose exec ", "docker compose exec -T ");
        let line = if self.old_command { line.replace("docker compose ", "docker-compose ") } else { line };
        let programs = binaries::find("tidegate-api")?;
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(root());
        shell.env("BINARIES", programs.parent().unwrap()).env("DOCKER_BUILDKIT", "0");
        for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"] {
            shell.env_remove(name);
        }
        self.engine.output(shell)
    }

    /// Runs a command in a container of the lab and returns its output.
    fn exec(&self, container: &str, command: &str) -> Result<String> {
        let output = self.run(&format!("docker compose exec {container} {command}"))?;
        ensure!(output.status.success(), "{}", text(&output));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Checks that backend 3 replies to every connection from each client to each address.
    fn only_backend_3_answers(&self) {
        for from in ["client", "router"] {
            for address in [BY_ARP, BY_BGP] {
                let row = format!("for i in $(busybox seq {CONNECTIONS}); do curl -sS -m 5 {address}; done");
                let answers = self.exec(from, &format!("sh -c '{row}'")).unwrap();
                let answers: Vec<_> = answers.lines().collect();
                assert_eq!(answers, ["backend-3"; CONNECTIONS], "from the {from} to {address}");
            }
        }
    }

    /// Checks that the client resolves the address to the link-layer address of node 2.
    fn node_2_answers_by_arp(&self) {
        let of_node_2 = self.engine.docker(&["ps", "--quiet", "--filter", "name=node-2"]).unwrap();
        let format =
            "{{range $name, $at := .NetworkSettings.Networks}}{{println $name $at.MacAddress}}{{end}}";
        let links = self.engine.docker(&["inspect", "--format", format, of_node_2.trim()]).unwrap();
        let link = links.lines().find(|line| line.contains("front ")).unwrap();
        let address = link.split_whitespace().last().unwrap();
        wait::until("the client to learn that the address is at node-2", || {
            self.exec("client", &format!("curl -sS -m 3 {BY_ARP}"))?;
            let learnt = self.exec("client", &format!("ip neigh show {BY_ARP}"))?;
            ensure!(learnt.contains(address), "node-2 has {address}, the client has {learnt}");
            Ok(())
        })
        .unwrap();
    }
}

/// Parses the guide and returns the commands in its terminal blocks with their output.
fn steps(guide: &str) -> Vec<Step> {
    let mut steps = Vec::<Step>::new();
    let mut is_terminal = false;
    for line in guide.lines() {
        if line.starts_with("```") {
            is_terminal = line == "```console";
        } else if let (true, Some(command)) = (is_terminal, line.strip_prefix("$ ")) {
            steps.push(Step { command: command.to_owned(), said: Vec::new() });
        } else if is_terminal {
            steps.last_mut().unwrap().said.push(line.to_owned());
        }
    }
    steps
}

/// Returns true if the line `found` contains the words of `wanted` in order.
fn is_like(found: &str, wanted: &str) -> bool {
    let rest = wanted.split_whitespace().try_fold(found, |rest, word| {
        let at = rest.find(word)?;
        rest.get(at + word.len()..)
    });
    rest.is_some()
}

/// Returns the default routes of a namespace; empty if the namespace is not connected to an external network.
fn ways_out(namespace: &Namespace) -> String {
    let all = ["-4", "-6"].map(|family| namespace.run("ip", &[family, "route", "show", "default"]).unwrap());
    all.concat()
}

/// Returns the containers, networks and volumes of an engine, except the networks that every engine has.
fn left(engine: &Engine) -> String {
    let containers = engine.docker(&["ps", "--all", "--format", "container {{.Names}}"]).unwrap();
    let networks = engine
        .docker(&["network", "ls", "--filter", "type=custom", "--format", "network {{.Name}}"])
        .unwrap();
    let volumes = engine.docker(&["volume", "ls", "--format", "volume {{.Name}}"]).unwrap();
    containers + &networks + &volumes
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn a_line_is_like_another_that_has_its_words_in_order() {
    let found = "B>* 198.51.100.10/32 [20/0] via 10.77.0.11, eth0, weight 1, 00:00:10";
    assert!(is_like(found, "B>* 198.51.100.10/32 via 10.77.0.11"));
    assert!(!is_like(found, "via B>*"));
    assert!(!is_like(found, "B>* 198.51.100.10/32 via 10.77.0.12"));
}
