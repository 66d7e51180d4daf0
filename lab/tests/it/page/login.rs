//! Test of the login to the page, and of the permissions of viewers and administrators.

use std::fs;

use lab::{
    cluster::control::Http,
    host::netns::Namespace,
    processes::{
        browser::{Browser, Look},
        process::{Plan, Process},
    },
};
use serde_json::{Value, json};

/// Control server with authentication, a token of a viewer and a token of an administrator.
struct Guarded {
    browser: Browser,
    _server: Process,
    api: Http,
    admin: String,
    viewer: String,
    _directory: tempfile::TempDir,
}

const CONTROL: &str = "127.0.0.1:7440";

impl Guarded {
    fn new() -> Self {
        let namespace = Namespace::new("guarded").unwrap();
        let directory = tempfile::Builder::new().prefix("tidegate-page-").tempdir().unwrap();
        let mut server = Process::start(Plan {
            label: "tidegate-api".to_owned(),
            namespace: namespace.clone(),
            program: lab::processes::binaries::find("tidegate-api").unwrap(),
            arguments: vec![
                format!("--listen={CONTROL}"),
                "--auth=required".to_owned(),
                format!("--store=sqlite:{}", directory.path().join("control.sqlite").display()),
                "--service-cidr=10.96.0.0/16".to_owned(),
            ],
            environment: Vec::new(),
            log: directory.path().join("control.log"),
        })
        .unwrap();
        let api = Http::new(&namespace, CONTROL.parse().unwrap());
        server.wait_ready(|| api.get("/readyz")?.success().map(drop)).unwrap();
        let admin = fs::read_to_string(directory.path().join("bootstrap-token")).unwrap().trim().to_owned();
        let made = send(
            &api,
            &admin,
            "POST",
            "/v1/tokens",
            &json!({"name": "watcher", "bindings": [{"role": "viewer"}]}),
        );
        let viewer = made["token"].as_str().unwrap_or_else(|| panic!("no token in {made}")).to_owned();
        let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
        send(&api, &admin, "POST", "/v1/namespaces/default/services", &service);
        let browser = Browser::start(&namespace, Look::DESK).unwrap();
        Self { browser, _server: server, api, admin, viewer, _directory: directory }
    }

    fn log_in(&mut self, token: &str) {
        self.browser.fill("[data-view='login'] input", token).unwrap();
        self.browser.press(&[lab::processes::browser::Key::Enter]).unwrap();
    }
}

fn send(api: &Http, token: &str, method: &str, path: &str, body: &Value) -> Value {
    let bearer = format!("Bearer {token}");
    let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
    api.send(method, path, &headers, body.to_string()).unwrap().success().unwrap().json()
}

const MANIFEST: &str =
    "apiVersion: tidegate/v1\nkind: Service\nmetadata: {name: other}\nspec: {ports: [{port: 80}]}\n";

/// Without a token the page shows only the login form. A wrong token is rejected with a message. A viewer can
/// read but not change objects, neither with the page nor with direct requests. An administrator can log in
/// after the viewer has logged out. After logout the page shows only the login form again.
#[test]
fn a_token_opens_the_page_a_viewer_cannot_change_anything_and_logging_out_closes_it() {
    let mut guarded = Guarded::new();
    let url = format!("{}/#/services", guarded.api.url());
    guarded.browser.open(&url).unwrap();
    guarded.browser.wait_for("[data-view='login']").unwrap();
    guarded.browser.expect_accessible().unwrap();
    guarded.browser.picture("login").unwrap();
    assert_eq!(guarded.browser.count("[data-key]").unwrap(), 0, "nothing is shown to strangers");

    guarded.log_in("tg_wrong");
    guarded.browser.wait_for("[data-view='login'] [role='alert']").unwrap();
    let viewer = guarded.viewer.clone();
    guarded.log_in(&viewer);
    guarded.browser.wait_for("[data-view='services'] [data-key='default/web']").unwrap();
    let kept = guarded.browser.script(
        "return document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage);",
        &[],
    );
    assert!(!kept.unwrap().to_string().contains(&viewer), "the token is kept where scripts can read it");

    expect_no_buttons(&mut guarded.browser);
    guarded.browser.script("location.hash = '#/plan';", &[]).unwrap();
    guarded.browser.wait_for("[data-view='plan'] textarea").unwrap();
    guarded.browser.fill("[data-view='plan'] textarea", MANIFEST).unwrap();
    let apply = "[...document.querySelectorAll('[data-view=plan] button')].filter((one) => /apply/i.test(one.innerText))";
    let is_closed =
        format!("{apply}.every((one) => one.disabled || one.getAttribute('aria-disabled') === 'true')");
    guarded.browser.wait_true("a viewer to be kept from applying", &is_closed).unwrap();
    let refused = guarded
        .browser
        .script_later(
            "const done = arguments[arguments.length - 1]; \
             fetch('/v1/apply', {method: 'POST', headers: {'Content-Type': 'application/yaml', 'X-Tidegate-Page': '1'}, body: arguments[0]}) \
                 .then((answer) => done(answer.status), (error) => done(String(error)));",
            &[json!(MANIFEST)],
        )
        .unwrap();
    assert_eq!(refused, json!(403), "the API refuses what the page does not offer");

    log_out(&mut guarded.browser);
    let admin = guarded.admin.clone();
    guarded.log_in(&admin);
    guarded.browser.wait_for("#live[data-state='live']").unwrap();
    expect_first_steps(&mut guarded);
    log_out(&mut guarded.browser);
    assert_eq!(guarded.browser.count("[data-key]").unwrap(), 0, "nothing is shown any longer");
}

/// Asserts that a button that a viewer may not use is disabled, with the reason as text beside it.
fn expect_no_buttons(browser: &mut Browser) {
    browser.script("location.hash = '#/services/default/web';", &[]).unwrap();
    browser.wait_for("[data-view='service'] [data-why]").unwrap();
    let why = browser.text("[data-view='service'] [data-why]").unwrap();
    assert!(why.contains("may not change Service objects in default"), "{why}");
    assert_eq!(browser.count("[data-view='service'] [data-action='drain']:not(:disabled)").unwrap(), 0);
    browser.expect_accessible().unwrap();
}

/// Deletes the only Service, and asserts that the overview then lists the first steps, of which none is done, with
/// the command of the first.
fn expect_first_steps(guarded: &mut Guarded) {
    let bearer = format!("Bearer {}", guarded.admin);
    let headers = [("authorization", bearer.as_str())];
    let path = "/v1/namespaces/default/services/web";
    guarded.api.send("DELETE", path, &headers, String::new()).unwrap().success().unwrap();
    guarded.browser.script("location.hash = '#/';", &[]).unwrap();
    guarded.browser.wait_for("#first [data-step='0'][aria-current='step']").unwrap();
    assert_eq!(guarded.browser.count("#first [data-done='true']").unwrap(), 0);
    let said = guarded.browser.text("#first [data-step='0'] pre").unwrap();
    assert!(said.contains("tidegate-agent"), "{said}");
    guarded.browser.expect_accessible().unwrap();
    guarded.browser.picture("first-steps").unwrap();
}

/// Logs out, and waits for the login form.
pub(super) fn log_out(browser: &mut Browser) {
    browser.wait_for(".who button").unwrap();
    browser.click(".who button").unwrap();
    browser.wait_for("[data-view='login']").unwrap();
}
