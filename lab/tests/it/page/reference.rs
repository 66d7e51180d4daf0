//! Test of the API reference at `/docs/` in a browser.

use anyhow::{Result, ensure};
use lab::processes::browser::Look;
use serde_json::json;

use super::{
    legible::expect_readable,
    stage::{Stage, expect_no_sideways_scroll},
};

/// Subjects that come first, in this order.
const FIRST: [&str; 3] = ["Service", "EndpointSet", "Workload"];

/// Opens the reference at an operation, and checks its order, the request of the operation, and that it can be
/// read on a desktop and on a phone. Adds a message to `wrong` for each fault.
pub(crate) fn check(stage: &mut Stage, wrong: &mut Vec<String>) {
    for look in [Look::NIGHT, Look::PHONE] {
        stage.browser.look(look).unwrap();
        stage.browser.open("about:blank").unwrap();
        stage.browser.open(&format!("{}/docs/#createService", stage.cluster.api.url())).unwrap();
        stage.browser.wait_for("#createService[open] pre").unwrap();
        let checks = [
            expect_order(stage),
            expect_request(stage),
            expect_readable(&mut stage.browser, ".docs-nav, .operation-summary, h2"),
            expect_no_sideways_scroll(&mut stage.browser),
            stage.browser.expect_accessible(),
            stage.browser.picture(&format!("reference-{}", look.width)).map(drop),
            stage.browser.expect_quiet_console(),
        ];
        wrong.extend(
            checks
                .into_iter()
                .filter_map(Result::err)
                .map(|error| format!("API reference at {} px: {error:#}", look.width)),
        );
    }
}

fn expect_order(stage: &mut Stage) -> Result<()> {
    let seen = stage.browser.script(
        "return [...document.querySelectorAll('.docs-nav a')].slice(0, 3).map((one) => one.hash.slice(1));",
        &[],
    )?;
    ensure!(seen == json!(FIRST), "{seen}");
    // Only the operation of the link is drawn.
    let open = stage.browser.count(".operation-body")?;
    ensure!(open == 1, "{open} operations are drawn");
    Ok(())
}

fn expect_request(stage: &mut Stage) -> Result<()> {
    let request = stage.browser.text("#createService pre")?;
    ensure!(request.contains("-X POST") && request.contains("/v1/namespaces/default/services"), "{request}");
    ensure!(request.contains("\"spec\""), "a write without a body: {request}");
    Ok(())
}
