//! Headless Chromium for tests of the web page, driven by ChromeDriver over the WebDriver protocol inside a
//! network namespace.
//!
//! ```text
//! test thread ──▶ Browser ──WebDriver──▶ chromedriver ──▶ chromium ──HTTP──▶ control server
//!                 └──────────────── all in one network namespace ────────────────┘
//! ``` Each browser has its own profile and driver, which are removed with the browser. Console errors of the page
//! and violations of its content security policy are collected until a test checks them
//! ([`Browser::expect_quiet_console`]).

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

/// Timeout of one WebDriver command on a busy machine.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that a browser gets for a clean exit before it is killed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of console lines kept, so that a page with endless errors does not fill memory.
const CONSOLE_LINES_MAX: usize = 200;

/// Viewport size, color scheme and other media settings of a browser window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Viewport width in CSS pixels.
    pub width: u32,
    /// Viewport height in CSS pixels.
    pub height: u32,
    /// True if a phone is emulated, which has touch input and applies the viewport setting of the page.
    pub is_phone: bool,
    /// True if the page must use the dark color scheme (`prefers-color-scheme`).
    pub is_dark: bool,
}

impl Look {
    /// Viewport of a desktop browser window.
    pub const DESK: Self = Self { width: 1440, height: 900, is_phone: false, is_dark: false };
    /// A desktop window with the dark color scheme.
    pub const NIGHT: Self = Self { is_dark: true, ..Self::DESK };
    /// Viewport of a phone in portrait orientation.
    pub const PHONE: Self = Self { width: 390, height: 844, is_phone: true, is_dark: false };
}

/// Running browser with one window. Dropping it ends the browser; after a panic, a screenshot and the console
/// are saved first.
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
    /// Returns an error if Chromium or ChromeDriver is not installed or does not start.
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
            wire::port_in(&text).ok_or_else(|| anyhow!("no port reported yet"))
        });
        let port = port.context("lab/setup.sh installs chromium and chromium-driver")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let capabilities = profile::capabilities(profile.path(), look);
        let client = namespace.inside(|| {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            builder.capabilities(capabilities);
            runtime.block_on(builder.connect(&format!("http://127.0.0.1:{port}")))
        });
        let client = client.with_context(|| {
            format!("cannot open a browser session; log of the driver:\n{}", driver.log_tail())
        })?;
        let namespace = namespace.clone();
        let mut browser =
            Self { client: Some(client), runtime, driver, profile, namespace, console: Vec::new() };
        browser.look(look)?;
        Ok(browser)
    }

    /// Applies the given viewport and media settings to the running browser.
    ///
    /// # Errors
    /// Returns an error if the browser rejects the settings.
    pub fn look(&mut self, look: Look) -> Result<()> {
        let Look { width, height, is_phone, is_dark } = look;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics)?;
        self.devtools("Emulation.setTouchEmulationEnabled", &json!({"enabled": is_phone}))?;
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({"features": [
            {"name": "prefers-color-scheme", "value": scheme},
            // Screenshots are compared, so no animation may be in progress.
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]});
        self.devtools("Emulation.setEmulatedMedia", &media).map(drop)
    }

    /// Opens a URL.
    ///
    /// # Errors
    /// Returns an error if the page cannot be loaded.
    pub fn open(&mut self, url: &str) -> Result<()> {
        self.run(async |client| client.goto(url).await).with_context(|| format!("opening {url}"))?;
        self.drain_console()
    }

    /// Runs `body` as the body of a JavaScript function in the page, with `arguments`, and returns the
    /// result.
    ///
    /// # Errors
    /// Returns an error if the script throws.
    pub fn script(&mut self, body: &str, arguments: &[Value]) -> Result<Value> {
        let arguments = arguments.to_vec();
        self.run(async |client| client.execute(body, arguments).await)
            .with_context(|| format!("running {body}"))
    }

    /// Runs `body` as the body of an asynchronous JavaScript function in the page. The last of the function's
    /// arguments is a callback; the value passed to it is the result.
    ///
    /// # Errors
    /// Returns an error if the script throws or never calls back.
    pub fn script_later(&mut self, body: &str, arguments: &[Value]) -> Result<Value> {
        let arguments = arguments.to_vec();
        self.run(async |client| client.execute_async(body, arguments).await)
            .with_context(|| format!("running {body}"))
    }

    /// Waits until the JavaScript expression `expression` is true in the page. The first argument describes
    /// the condition in errors.
    ///
    /// # Errors
    /// Returns the last value of the expression on timeout.
    pub fn wait_true(&mut self, what: &str, expression: &str) -> Result<()> {
        let body = format!("return ({expression});");
        wait::until(what, || {
            let seen = self.script(&body, &[])?;
            ensure!(seen == Value::Bool(true), "{expression} is {seen}");
            Ok(())
        })
    }

    /// Waits until an element that matches a CSS selector is rendered.
    ///
    /// # Errors
    /// Returns the text of the page on timeout.
    pub fn wait_for(&mut self, selector: &str) -> Result<()> {
        let shown = "const found = document.querySelector(arguments[0]); \
                     return Boolean(found && found.getClientRects().length);";
        wait::until(&format!("{selector} to be visible"), || {
            ensure!(self.script(shown, &[json!(selector)])? == Value::Bool(true), "{}", self.body_text()?);
            Ok(())
        })
    }

    /// Returns the rendered text of the first element that matches a selector.
    ///
    /// # Errors
    /// Returns an error if no element matches.
    pub fn text(&mut self, selector: &str) -> Result<String> {
        let body = "const found = document.querySelector(arguments[0]); return found && found.innerText;";
        let text = self.script(body, &[json!(selector)])?;
        text.as_str().map(str::to_owned).with_context(|| format!("the page has no {selector}"))
    }

    /// Returns the number of elements that match a selector.
    ///
    /// # Errors
    /// Returns an error if the selector is invalid.
    pub fn count(&mut self, selector: &str) -> Result<u64> {
        let found =
            self.script("return document.querySelectorAll(arguments[0]).length;", &[json!(selector)])?;
        found.as_u64().context("a length is a number")
    }

    /// Clicks the center of the first element that matches a CSS selector, like a mouse: if another element
    /// covers it, that element receives the click.
    ///
    /// # Errors
    /// Returns an error if no element matches or the element cannot be clicked.
    pub fn click(&mut self, selector: &str) -> Result<()> {
        self.wait_for(selector)?;
        self.run(async |client| client.find(fantoccini::Locator::Css(selector)).await?.click().await)
            .with_context(|| format!("clicking {selector}"))
    }

    /// Focuses the first element that matches a selector and replaces its content with the typed text.
    ///
    /// # Errors
    /// Returns an error if no element matches or the element is not editable.
    pub fn fill(&mut self, selector: &str, text: &str) -> Result<()> {
        self.wait_for(selector)?;
        self.run(async |client| {
            let field = client.find(fantoccini::Locator::Css(selector)).await?;
            field.clear().await?;
            field.send_keys(text).await
        })
        .with_context(|| format!("typing into {selector}"))
    }

    /// Saves a screenshot in `target/page/` and returns its path.
    ///
    /// # Errors
    /// Returns an error if the screenshot cannot be taken or written.
    pub fn picture(&mut self, name: &str) -> Result<PathBuf> {
        let bytes = self.run(async |client| client.screenshot().await).context("no picture")?;
        let path = kept_directory()?.join(format!("{name}.png"));
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Drains the page errors collected since the last call: script errors, failed requests and content
    /// security policy violations.
    ///
    /// # Errors
    /// Returns an error if the browser does not respond.
    pub fn take_console(&mut self) -> Result<Vec<String>> {
        self.drain_console()?;
        Ok(std::mem::take(&mut self.console))
    }

    /// Asserts that the page logged no error since the last call.
    ///
    /// # Errors
    /// Returns the console lines if there are any.
    pub fn expect_quiet_console(&mut self) -> Result<()> {
        let lines = self.take_console()?;
        ensure!(lines.is_empty(), "the page logged errors:\n{}", lines.join("\n"));
        Ok(())
    }

    /// Sends a command of the Chrome DevTools Protocol.
    ///
    /// # Errors
    /// Returns an error if Chromium rejects the command.
    pub fn devtools(&mut self, command: &str, parameters: &Value) -> Result<Value> {
        self.issue(wire::Command::devtools(command, parameters)).with_context(|| command.to_owned())
    }

    fn body_text(&mut self) -> Result<String> {
        let text = self.script("return document.body ? document.body.innerText : '';", &[])?;
        Ok(format!("the page contains:\n{}", text.as_str().unwrap_or_default()))
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

    /// Runs a WebDriver command on a thread inside the namespace of the driver, and returns its result.
    fn run<T: Send, E: std::error::Error + Send + Sync + 'static>(
        &mut self,
        command: impl AsyncFnOnce(Client) -> Result<T, E> + Send,
    ) -> Result<T> {
        let Some(client) = self.client.clone() else { bail!("the browser has ended") };
        let runtime = &self.runtime;
        self.namespace.inside(|| {
            runtime.block_on(async {
                let done = tokio::time::timeout(COMMAND_TIMEOUT, command(client)).await;
                Ok(done.with_context(|| format!("the browser did not respond within {COMMAND_TIMEOUT:?}"))??)
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
                // A browser that does not close in time is killed below.
                let _ = runtime.block_on(closing);
            });
        }
        self.driver.kill();
        profile::kill_users_of(self.profile.path());
    }
}

/// Returns the directory of screenshots, `page` in the target directory of this build, and creates it if
/// needed.
///
/// # Errors
/// Returns an error if the directory cannot be created.
pub fn kept_directory() -> Result<PathBuf> {
    let target = binaries::target_directory()?;
    let kept = target.join("page");
    std::fs::create_dir_all(&kept).with_context(|| format!("cannot make {}", kept.display()))?;
    Ok(kept)
}
