//! Runner of the plugin, as libcni: environment, configuration on standard input, and the cached result of ADD.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

/// Runtime that calls the plugin with one network configuration.
pub(crate) struct Runner {
    socket: PathBuf,
    version: String,
    /// Results of ADD by container and interface.
    cache: BTreeMap<(String, String), Value>,
}

/// Arguments of one call.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) container: &'a str,
    pub(crate) netns: Option<&'a str>,
    pub(crate) args: &'a str,
    /// Passes the cached result of ADD.
    pub(crate) with_result: bool,
}

impl<'a> Call<'a> {
    pub(crate) const fn of(container: &'a str, netns: &'a str) -> Self {
        Self { container, netns: Some(netns), args: "", with_result: true }
    }
}

/// Error of the plugin: code and details.
pub(crate) type Failure = (u64, String);

impl Runner {
    pub(crate) fn new(socket: &Path, version: &str) -> Self {
        Self { socket: socket.to_owned(), version: version.to_owned(), cache: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, call: Call<'_>) -> Result<Value, Failure> {
        let result = self.call("ADD", Some(call), json!({}))?.expect("ADD has a result");
        self.cache.insert((call.container.to_owned(), "eth0".to_owned()), result.clone());
        Ok(result)
    }

    /// Adds a container with further fields of the configuration.
    pub(crate) fn add_with(&self, call: Call<'_>, fields: Value) -> Result<Value, Failure> {
        self.call("ADD", Some(call), fields).map(|result| result.expect("ADD has a result"))
    }

    pub(crate) fn check(&self, call: Call<'_>) -> Result<(), Failure> {
        self.call("CHECK", Some(call), self.result(call)).map(|answer| assert_eq!(answer, None))
    }

    pub(crate) fn del(&mut self, call: Call<'_>) -> Result<(), Failure> {
        self.call("DEL", Some(call), self.result(call)).map(|answer| assert_eq!(answer, None))?;
        self.cache.remove(&(call.container.to_owned(), "eth0".to_owned()));
        Ok(())
    }

    /// Collects garbage: the cached results are valid.
    pub(crate) fn gc(&self) -> Result<(), Failure> {
        let valid: Vec<_> =
            self.cache.keys().map(|(id, name)| json!({"containerID": id, "ifname": name})).collect();
        self.call("GC", None, json!({"cni.dev/valid-attachments": valid}))
            .map(|answer| assert_eq!(answer, None))
    }

    /// Collects garbage with other fields than the list of valid attachments.
    pub(crate) fn gc_with(&self, fields: Value) -> Result<(), Failure> {
        self.call("GC", None, fields).map(|answer| assert_eq!(answer, None))
    }

    pub(crate) fn status(&self) -> Result<(), Failure> {
        self.status_of(json!({}))
    }

    /// Asks for the status with further fields of the configuration.
    pub(crate) fn status_of(&self, fields: Value) -> Result<(), Failure> {
        self.call("STATUS", None, fields).map(|answer| assert_eq!(answer, None))
    }

    pub(crate) fn version(&self) -> Value {
        self.call("VERSION", None, json!({})).unwrap().unwrap()
    }

    /// Forgets a container, as after the loss of the runtime's cache.
    pub(crate) fn forget(&mut self, container: &str) {
        self.cache.retain(|(id, _), _| id != container);
    }

    fn result(&self, call: Call<'_>) -> Value {
        let cached = self.cache.get(&(call.container.to_owned(), "eth0".to_owned()));
        cached.filter(|_| call.with_result).map_or(json!({}), |result| json!({"prevResult": result}))
    }

    fn call(&self, command: &str, call: Option<Call<'_>>, extra: Value) -> Result<Option<Value>, Failure> {
        let mut config = json!({"cniVersion": self.version, "name": "pods", "type": "tidegate-cni", "socket": self.socket});
        config.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let mut plugin = Command::new(env!("CARGO_BIN_EXE_tidegate-cni"));
        plugin.env_clear().env("CNI_COMMAND", command).env("CNI_PATH", "/opt/cni/bin");
        if let Some(Call { container, netns, args, with_result: _ }) = call {
            plugin.env("CNI_CONTAINERID", container).env("CNI_IFNAME", "eth0").env("CNI_ARGS", args);
            plugin.env("CNI_NETNS", netns.unwrap_or_default());
        }
        let mut child = plugin.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let answer =
            (!output.stdout.is_empty()).then(|| serde_json::from_slice::<Value>(&output.stdout).unwrap());
        if output.status.success() {
            return Ok(answer);
        }
        let error = answer.expect("a failed call has an answer");
        assert_eq!(error["cniVersion"], self.version.as_str());
        Err((error["code"].as_u64().unwrap(), format!("{}: {}", error["msg"], error["details"])))
    }
}
