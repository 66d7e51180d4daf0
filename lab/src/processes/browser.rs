//! A real browser for the page: headless Chromium, driven by ChromeDriver over the WebDriver protocol, inside a namespace.
//!
//! ```text
//! test thread ──▶ Browser ──WebDriver──▶ chromedriver ──▶ chromium ──HTTP──▶ control server
//!                 └────────────── all of it in one network namespace ──────────────┘
//! ```
//! Every browser has a profile and a driver of its own, and both end with it. What the page writes to the console as an error,
//! and what its content security policy stops, is kept until a test asks for it ([`Browser::expect_quiet_console`]).

mod axe;
mod keys;
mod profile;
mod wire;

use std::{io::Write, path::PathBuf, time::Duration};

use anyhow::{Context, Result, anyhow, bail, ensure};
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

pub use axe::Finding;
pub use keys::Key;

use crate::{
    host::{netns::Namespace, scratch::Scratch, wait},
    processes::{
        binaries,
        process::{Plan, Process},
    },
};

/// How long one command of WebDriver may take on a busy machine.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a browser may take to end by itself before it is killed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Lines of the console that are kept, so that a page that complains without end does not fill memory.
const CONSOLE_LINES_MAX: usize = 200;

/// How the page is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Of what is shown, in CSS pixels.
    pub width: u32,
    /// Of what is shown, in CSS pixels.
    pub height: u32,
    /// Whether it is a phone: touch, and the page's own width setting counts.
    pub is_phone: bool,
    /// Whether the machine prefers dark colours.
    pub is_dark: bool,
}

impl Look {
    /// A window on a desk.
    pub const DESK: Self = Self { width: 1440, height: 900, is_phone: false, is_dark: false };
    /// The same at night.
    pub const NIGHT: Self = Self { is_dark: true, ..Self::DESK };
    /// A phone, held upright.
    pub const PHONE: Self = Self { width: 390, height: 844, is_phone: true, is_dark: false };
}

/// A running browser with one window. Dropping it ends it; by a panic, a picture of it and its console are kept first.
#[derive(Debug)]
pub struct Browser {
    client: Option<Client>,
    runtime: Runtime,
    driver: Process,
    profile: Scratch,
    namespace: Namespace,
    console: Vec<String>,
}

impl Browser {
    /// Starts a browser in a namespace.
    ///
    /// # Errors
    /// Chromium or ChromeDriver is not installed, or does not start.
    pub fn start(namespace: &Namespace, look: Look) -> Result<Self> {
        let profile = Scratch::new("browser")?;
        let mut driver = Process::start(Plan {
            label: "chromedriver".to_owned(),
            namespace: namespace.clone(),
            program: PathBuf::from("chromedriver"),
            arguments: vec!["--port=0".to_owned(), "--log-level=WARNING".to_owned()],
            environment: profile::environment(profile.path()),
            log: profile.path().join("chromedriver.log"),
        })?;
        let log = profile.path().join("chromedriver.log");
        let port = driver.wait_ready(|| {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            wire::port_in(&text).ok_or_else(|| anyhow!("it has not said its port"))
        });
        let port = port.context("lab/setup.sh installs chromium and chromium-driver")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let capabilities = profile::capabilities(profile.path(), look);
        let client = namespace.inside(|| {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            builder.capabilities(capabilities);
            runtime.block_on(builder.connect(&format!("http://127.0.0.1:{port}")))
        });
        let client =
            client.with_context(|| format!("no browser; the driver says:\n{}", driver.log_tail()))?;
        let namespace = namespace.clone();
        let mut browser =
            Self { client: Some(client), runtime, driver, profile, namespace, console: Vec::new() };
        browser.look(look)?;
        Ok(browser)
    }

    /// Looks at the page in another way; no restart is needed.
    ///
    /// # Errors
    /// The browser refuses.
    pub fn look(&mut self, look: Look) -> Result<()> {
        let Look { width, height, is_phone, is_dark } = look;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics)?;
        self.devtools("Emulation.setTouchEmulationEnabled", &json!({"enabled": is_phone}))?;
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({"features": [
            {"name": "prefers-color-scheme", "value": scheme},
            // Pictures are compared: nothing may be half way between two places.
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]});
        self.devtools("Emulation.setEmulatedMedia", &media).map(drop)
    }

    /// Opens an address.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub fn open(&mut self, url: &str) -> Result<()> {
        self.run(async |client| client.goto(url).await).with_context(|| format!("opening {url}"))?;
        self.drain_console()
    }

    /// Runs the body of a function in the page, with `arguments`, and gives what it returns.
    ///
    /// # Errors
    /// It throws.
    pub fn script(&mut self, body: &str, arguments: &[Value]) -> Result<Value> {
        let arguments = arguments.to_vec();
        self.run(async |client| client.execute(body, arguments).await)
            .with_context(|| format!("running {body}"))
    }

    /// As [`Self::script`], for a body that calls its last argument with what it gives when it is done.
    ///
    /// # Errors
    /// It throws, or never calls.
    pub fn script_later(&mut self, body: &str, arguments: &[Value]) -> Result<Value> {
        let arguments = arguments.to_vec();
        self.run(async |client| client.execute_async(body, arguments).await)
            .with_context(|| format!("running {body}"))
    }

    /// Waits until an expression of the page is true; what it was last is in the error.
    ///
    /// # Errors
    /// It never is.
    pub fn wait_true(&mut self, what: &str, expression: &str) -> Result<()> {
        let body = format!("return ({expression});");
        wait::until(what, || {
            let seen = self.script(&body, &[])?;
            ensure!(seen == Value::Bool(true), "{expression} is {seen}");
            Ok(())
        })
    }

    /// Waits until something that a CSS selector finds is drawn.
    ///
    /// # Errors
    /// It never is; what the page shows is in the error.
    pub fn wait_for(&mut self, selector: &str) -> Result<()> {
        let shown = "const found = document.querySelector(arguments[0]); \
                     return Boolean(found && found.getClientRects().length);";
        wait::until(&format!("{selector} to be shown"), || {
            ensure!(self.script(shown, &[json!(selector)])? == Value::Bool(true), "{}", self.body_text()?);
            Ok(())
        })
    }

    /// The text of the first element that a selector finds, as it is drawn.
    ///
    /// # Errors
    /// There is none.
    pub fn text(&mut self, selector: &str) -> Result<String> {
        let body = "const found = document.querySelector(arguments[0]); return found && found.innerText;";
        let text = self.script(body, &[json!(selector)])?;
        text.as_str().map(str::to_owned).with_context(|| format!("the page has no {selector}"))
    }

    /// How many elements a selector finds.
    ///
    /// # Errors
    /// The selector is none.
    pub fn count(&mut self, selector: &str) -> Result<u64> {
        let found =
            self.script("return document.querySelectorAll(arguments[0]).length;", &[json!(selector)])?;
        found.as_u64().context("a length is a number")
    }

    /// Clicks in the middle of the first element that a selector finds, as a mouse does: what lies above it gets the click.
    ///
    /// # Errors
    /// There is none, or it cannot be clicked.
    pub fn click(&mut self, selector: &str) -> Result<()> {
        self.wait_for(selector)?;
        self.run(async |client| client.find(fantoccini::Locator::Css(selector)).await?.click().await)
            .with_context(|| format!("clicking {selector}"))
    }

    /// Focuses the first element that a selector finds and types a text in place of what was in it.
    ///
    /// # Errors
    /// There is none, or it takes no text.
    pub fn fill(&mut self, selector: &str, text: &str) -> Result<()> {
        self.wait_for(selector)?;
        self.run(async |client| {
            let field = client.find(fantoccini::Locator::Css(selector)).await?;
            field.clear().await?;
            field.send_keys(text).await
        })
        .with_context(|| format!("typing into {selector}"))
    }

    /// Keeps a picture of what is shown in `target/page/` and gives its path.
    ///
    /// # Errors
    /// It cannot be taken or written.
    pub fn picture(&mut self, name: &str) -> Result<PathBuf> {
        let bytes = self.run(async |client| client.screenshot().await).context("no picture")?;
        let path = kept_directory()?.join(format!("{name}.png"));
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// What went wrong in the page since the last look: errors of scripts, of requests, of the content security policy.
    ///
    /// # Errors
    /// The browser does not answer.
    pub fn take_console(&mut self) -> Result<Vec<String>> {
        self.drain_console()?;
        Ok(std::mem::take(&mut self.console))
    }

    /// Demands that nothing went wrong in the page since the last look.
    ///
    /// # Errors
    /// Something did.
    pub fn expect_quiet_console(&mut self) -> Result<()> {
        let lines = self.take_console()?;
        ensure!(lines.is_empty(), "the page complained:\n{}", lines.join("\n"));
        Ok(())
    }

    /// A command of Chromium's own protocol.
    ///
    /// # Errors
    /// Chromium refuses.
    pub fn devtools(&mut self, command: &str, parameters: &Value) -> Result<Value> {
        self.issue(wire::Command::devtools(command, parameters)).with_context(|| command.to_owned())
    }

    fn body_text(&mut self) -> Result<String> {
        let text = self.script("return document.body ? document.body.innerText : '';", &[])?;
        Ok(format!("the page shows:\n{}", text.as_str().unwrap_or_default()))
    }

    fn drain_console(&mut self) -> Result<()> {
        let said = self.issue(wire::Command::console())?;
        let room = CONSOLE_LINES_MAX.saturating_sub(self.console.len());
        self.console.extend(wire::complaints(&said).into_iter().take(room));
        Ok(())
    }

    fn issue(&mut self, command: wire::Command) -> Result<Value> {
        self.run(async |client| client.issue_cmd(command).await)
    }

    /// Runs a command where the driver can be reached.
    fn run<T: Send, E: std::error::Error + Send + Sync + 'static>(
        &mut self,
        command: impl AsyncFnOnce(Client) -> Result<T, E> + Send,
    ) -> Result<T> {
        let Some(client) = self.client.clone() else { bail!("the browser has ended") };
        let runtime = &self.runtime;
        self.namespace.inside(|| {
            runtime.block_on(async {
                let done = tokio::time::timeout(COMMAND_TIMEOUT, command(client)).await;
                Ok(done.with_context(|| format!("the browser did not answer in {COMMAND_TIMEOUT:?}"))??)
            })
        })
    }

    fn keep_evidence(&mut self) {
        let name = std::thread::current().name().unwrap_or("test").replace("::", "-");
        let picture = self.picture(&format!("failed-{name}"));
        let lines = self.take_console().unwrap_or_default();
        let mut stderr = std::io::stderr().lock();
        let _ = writeln!(stderr, "--- the browser ---\npicture: {picture:?}\nconsole: {}", lines.join("\n"));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_evidence();
        }
        if let Some(client) = self.client.take() {
            let runtime = &self.runtime;
            self.namespace.inside(|| {
                let closing = async { tokio::time::timeout(CLOSE_TIMEOUT, client.close()).await };
                // What does not close is killed below.
                let _ = runtime.block_on(closing);
            });
        }
        self.driver.kill();
        profile::kill_users_of(self.profile.path());
    }
}

/// Where pictures are kept: `page` in the target directory of this build.
///
/// # Errors
/// It cannot be made.
pub fn kept_directory() -> Result<PathBuf> {
    let target = binaries::target_directory()?;
    let kept = target.join("page");
    std::fs::create_dir_all(&kept).with_context(|| format!("cannot make {}", kept.display()))?;
    Ok(kept)
}
