//! Login to the page at the issuer, in a browser that follows the link, the forms of a certified provider
//! (`lab/oidc/`) and its redirects.

use std::path::Path;

use lab::{
    cluster::control::Http,
    host::netns::Namespace,
    processes::{
        binaries,
        browser::{Browser, Look},
        process::{Plan, Process},
    },
};

use super::login::log_out;

#[path = "../../../oidc/provider.rs"]
mod provider;

use provider::Provider;

const CONTROL: &str = "127.0.0.1:7440";

/// A user opens a link to a view, logs in at the issuer, and is back at the view with the own name and roles. After a
/// logout the page shows only the login form, and the link leads back without a password.
#[test]
fn the_link_to_the_issuer_leads_back_to_the_view_and_a_logout_ends_the_session() {
    let namespace = Namespace::new("issuer").unwrap();
    let provider = Provider::start_with(&[("OIDC_NETNS", Path::new(namespace.name()))]);
    let directory = tempfile::Builder::new().prefix("tidegate-page-").tempdir().unwrap();
    let mut server = Process::start(Plan {
        label: "tidegate-api".to_owned(),
        namespace: namespace.clone(),
        program: binaries::find("tidegate-api").unwrap(),
        arguments: vec![
            format!("--listen={CONTROL}"),
            "--auth=required".to_owned(),
            format!("--store=sqlite:{}", directory.path().join("control.sqlite").display()),
            format!("--oidc-issuer={}", provider.issuer),
            "--oidc-client-id=tidegate".to_owned(),
            "--oidc-group=admin=platform".to_owned(),
            format!("--oidc-page-url=http://{CONTROL}"),
            "--oidc-page-client-id=page".to_owned(),
        ],
        environment: Vec::new(),
        log: directory.path().join("control.log"),
    })
    .unwrap();
    let api = Http::new(&namespace, CONTROL.parse().unwrap());
    server.wait_ready(|| api.get("/readyz")?.success().map(drop)).unwrap();
    let mut browser = Browser::start(&namespace, Look::DESK).unwrap();
    browser.open(&format!("{}/#/history", api.url())).unwrap();
    browser.wait_for("[data-view='login'] .login-issuer a").unwrap();
    browser.expect_accessible().unwrap();

    browser.click(".login-issuer a").unwrap();
    browser.wait_for("input[name='login']").unwrap();
    browser.fill("input[name='login']", "kim").unwrap();
    browser.fill("input[name='password']", "x").unwrap();
    browser.click("button[type='submit']").unwrap();
    // The second form asks for consent.
    browser.wait_true("the form of consent", "!document.querySelector('input[name=login]')").unwrap();
    browser.click("button[type='submit']").unwrap();
    browser.wait_for("[data-view='history']").unwrap();
    browser.wait_for("#live[data-state='live']").unwrap();
    let who = browser.text(".who").unwrap();
    assert!(who.contains("kim"), "{who}");
    let hash = browser.script("return location.hash;", &[]).unwrap();
    assert_eq!(hash, "#/history", "the view of the link");
    let kept = browser.script("return document.cookie;", &[]).unwrap();
    assert_eq!(kept, "", "scripts cannot read the session");

    log_out(&mut browser);
    assert_eq!(browser.count("[data-view='history']").unwrap(), 0, "nothing is shown any longer");
    browser.open(&format!("{}/#/services", api.url())).unwrap();
    browser.wait_for("[data-view='login'] .login-issuer a").unwrap();
    browser.click(".login-issuer a").unwrap();
    browser.wait_for("#live[data-state='live']").unwrap();
    assert_eq!(browser.count("input[name='login']").unwrap(), 0, "the issuer still knows the browser");
}
