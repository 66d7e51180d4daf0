//! Certificates of agents whose control server is away for longer than their lifetime, or changes to a certificate of another
//! authority.

use std::{fs, time::Duration};

use anyhow::ensure;
use lab::{cluster::control::Http, host::wait};

use super::{AGENT, CONTROL, Cluster, stage::Stage};

/// Smallest lifetime of certificates of agents that the server accepts, and the default, in seconds.
const LIFE_SECS: [u64; 2] = [15, 86_400];
/// Path of the identity of the agent.
const IDENTITY: &str = "state/identity.pem";
const TIDEGATE: &str = "env TIDEGATE_API=https://10.0.0.1:7440 TIDEGATE_TOKEN_FILE=bootstrap-token \
                        TIDEGATE_CA_FILE=ca.pem tidegate";

/// Control server, node, and machine of a user.
struct Site {
    stage: Stage,
    /// Lifetime of certificates of agents in seconds.
    life_secs: u64,
}

impl Site {
    /// Starts the programs, and waits until the agent has joined and the user has the certificate of the authority.
    fn start(life_secs: u64) -> Self {
        let mut stage = Stage::new();
        for (machine, host) in [("control1", 1), ("node-1", 11), ("user", 31)] {
            stage.add(machine, host);
        }
        let mut site = Self { stage, life_secs };
        site.start_server("");
        site.learn_server();
        site.give_token();
        site.start_agent();
        site.wait_connected();
        site
    }

    fn start_server(&mut self, flags: &str) {
        let command = format!(
            "tidegate-api --listen 10.0.0.1:7440 --store sqlite:server.sqlite \
             --agent-certificate-secs {} {flags}",
            self.life_secs
        );
        self.stage.start("control1", "server", &command);
        wait::until("the server to answer", || {
            self.stage.run("user", "curl -fsk https://10.0.0.1:7440/readyz")
        })
        .unwrap();
    }

    /// Gives the user the first token of the server and the certificate of its authority.
    fn learn_server(&self) {
        fs::copy(self.stage.file("control1", "bootstrap-token"), self.stage.file("user", "bootstrap-token"))
            .unwrap();
        self.run("user", "curl -fsko ca.pem https://10.0.0.1:7440/v1/ca");
    }

    fn stop_server(&mut self) {
        self.stage.program("control1", "server").kill();
    }

    fn start_agent(&mut self) {
        let command = "tidegate-agent --api https://10.0.0.1:7440 --node node-1 --join-token-file join-token \
                       --state-dir state";
        self.stage.start("node-1", "agent", command);
    }

    fn run(&self, machine: &str, command: &str) -> String {
        wait::until(command, || self.stage.run(machine, command)).unwrap()
    }

    fn give_token(&self) {
        self.run("user", &format!("{TIDEGATE} node join-token node-1 > join-token"));
        fs::copy(self.stage.file("user", "join-token"), self.stage.file("node-1", "join-token")).unwrap();
    }

    fn state(&self) -> anyhow::Result<serde_json::Value> {
        Http::new(self.stage.place("node-1"), AGENT.parse()?).get_json("/v1/state")
    }

    fn wait_connected(&self) {
        wait::until("the agent to receive the state, without a warning", || {
            let state = self.state()?;
            let warnings = state["warnings"].to_string();
            ensure!(state["connected"] == true && !warnings.contains("certificate"), "{state}");
            Ok(())
        })
        .unwrap();
    }

    fn wait_warning(&self, texts: &[&str]) {
        wait::until(&format!("the warning {texts:?}"), || {
            let warnings = self.state()?["warnings"].to_string();
            ensure!(texts.iter().all(|text| warnings.contains(text)), "{warnings}");
            Ok(())
        })
        .unwrap();
    }

    fn agent_log(&self) -> String {
        fs::read_to_string(self.stage.file("node-1", "agent.log")).unwrap()
    }
}

/// Input: the server is away until the certificate of the agent has expired, and returns. Output: the agent continues
/// without a person, unless its certificate is not the newest one or expired too long ago; a join token helps then.
#[test]
fn agents_renew_certificates_that_expired_while_the_server_was_away() {
    let mut site = Site::start(LIFE_SECS[0]);
    let identity = site.stage.file("node-1", IDENTITY);
    let first = fs::read(&identity).unwrap();
    wait::until("the first renewal", || {
        ensure!(fs::read(&identity)? != first, "the identity is the first one");
        Ok(())
    })
    .unwrap();
    site.wait_connected();
    site.stop_server();
    site.wait_warning(&["expired", "no action is needed"]);
    site.start_server("");
    site.wait_connected();
    assert!(site.agent_log().contains("the expired certificate of this node was renewed"));

    // A restored state directory: its certificate is not the newest one.
    site.stage.program("node-1", "agent").terminate().unwrap();
    fs::write(&identity, &first).unwrap();
    site.start_agent();
    site.wait_warning(&["does not renew it", "not the newest one", "join-token node-1"]);
    site.give_token();
    site.wait_connected();

    // The server permits the renewal of certificates that expired a second ago.
    site.stop_server();
    std::thread::sleep(Duration::from_secs(LIFE_SECS[0] + 5));
    site.start_server("--agent-renewal-grace-secs 1");
    site.wait_warning(&["does not renew it", "longer than 1 s ago", "--agent-renewal-grace-secs"]);
    site.give_token();
    site.wait_connected();
}

/// Input: a node has joined, then the operator gives the server a certificate of another authority. Output: the agent
/// continues, also after a restart, while other clients get the certificate of the operator.
#[test]
fn agents_continue_when_the_operator_changes_to_another_authority() {
    let mut site = Site::start(LIFE_SECS[1]);
    site.run(
        "control1",
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.pem \
         -days 2 -subj /CN=other -addext subjectAltName=IP:10.0.0.1",
    );
    site.stop_server();
    site.start_server("--tls-cert-file server.pem --tls-key-file server.key");
    fs::copy(site.stage.file("control1", "server.pem"), site.stage.file("user", "server.pem")).unwrap();
    site.run("user", "curl -fs --cacert server.pem https://10.0.0.1:7440/readyz");
    site.stage.run("user", "curl -fs --cacert ca.pem https://10.0.0.1:7440/readyz").unwrap_err();
    site.wait_connected();
    site.stage.program("node-1", "agent").terminate().unwrap();
    site.start_agent();
    site.wait_connected();
    // The command names the authority that it trusts, as agents do.
    site.run("user", &format!("{TIDEGATE} get nodes"));
}

/// Input: the server is replaced by one of another cluster while the certificate of the agent is valid, and the agent gets a join token
/// of the new server. Output: the agent joins the new server at once.
#[test]
fn a_new_join_token_helps_if_the_server_cannot_be_verified() {
    let mut site = Site::start(LIFE_SECS[1]);
    site.stop_server();
    site.run("control1", "rm server.sqlite* bootstrap-token");
    site.start_server("");
    site.learn_server();
    let identity = site.stage.file("node-1", IDENTITY);
    let before = fs::read(&identity).unwrap();
    site.give_token();
    wait::until("the agent to join the new server", || {
        ensure!(fs::read(&identity)? != before, "the identity is that of the former server");
        ensure!(site.state()?["connected"] == true, "{}", site.agent_log());
        Ok(())
    })
    .unwrap();
    let agents = site.run("user", &format!("{TIDEGATE} get nodes"));
    assert!(agents.contains("node-1"), "{agents}");
}

/// Input: the authority is rotated at one of three control servers, with an agent and a user that know the former one. Output: all
/// servers trust both, the agent gets a certificate of the new one, and continues after the former one is retired.
#[test]
fn the_authority_is_rotated_while_an_agent_is_connected() {
    let mut cluster = Cluster::start(&format!("TIDEGATE_AGENT_CERTIFICATE_SECS={}", LIFE_SECS[0]));
    let agent = format!("env {} {} --state-dir state", cluster.commands.servers(), cluster.commands.agent);
    cluster.stage.start("node-1", "agent", &agent);
    let wait_nodes = |cluster: &Cluster, what: &str, field: &str| {
        wait::until(what, || {
            let status = cluster.tidegate("tidegate authority show -o json")?;
            let status: serde_json::Value = serde_json::from_str(&status)?;
            ensure!(status["nodesCurrent"] == 1 && status["nodesFormer"] == 0, "{status}");
            ensure!(status.get("former").is_some() == (field == "former"), "{status}");
            Ok(())
        })
        .unwrap();
    };
    wait_nodes(&cluster, "the certificate of the agent", "current");
    let rotated = cluster.tidegate("tidegate authority rotate").unwrap();
    assert!(rotated.contains("1 have not renewed their certificates: node-1"), "{rotated}");
    let refused = cluster.tidegate("tidegate authority retire").unwrap_err();
    assert!(format!("{refused:#}").contains("node-1"), "{refused:#}");

    let served = |cluster: &Cluster, file: &str| {
        let ask = |host| format!("curl -fsS --cacert {file} https://10.0.0.{host}:7440/readyz");
        CONTROL.map(|(_, host)| cluster.stage.run("user", &ask(host)).is_ok())
    };
    wait_nodes(&cluster, "the renewal by the new authority", "former");
    assert_eq!(served(&cluster, "ca.pem"), [true; 3], "clients that know the former one");
    cluster.stage.run("user", "curl -fsS --cacert ca.pem https://10.0.0.3:7440/v1/ca -o both.pem").unwrap();
    cluster.tidegate("tidegate authority retire").unwrap();
    wait::until_true("all servers to present certificates of the new one", || {
        served(&cluster, "both.pem") == [true; 3] && served(&cluster, "ca.pem") == [false; 3]
    })
    .unwrap();

    fs::rename(cluster.stage.file("user", "both.pem"), cluster.stage.file("user", "ca.pem")).unwrap();
    cluster.stage.program("node-1", "agent").terminate().unwrap();
    cluster.stage.start("node-1", "agent", &agent);
    wait::until("the agent to receive the state", || cluster.state_from()).unwrap();
    let service = cluster.serve("web");
    let reply = lab::network::client::tcp(cluster.stage.place("node-1"), service).unwrap();
    assert_eq!(reply.backend, "web-1");
}
