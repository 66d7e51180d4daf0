//! Tests of a change made on the page, from the plan to the rollback, and of the packet trace form.

use serde_json::Value;

use super::stage::{Stage, view_named};

/// Manifest of an additional Service, pasted into the page.
const MANIFEST: &str = "apiVersion: tidegate/v1\nkind: Service\nmetadata: {namespace: shop, name: wishlist}\n\
                        spec: {selector: {app: cart}, ports: [{name: http, port: 80, targetPort: 8080}]}\n";

/// Clicks the first enabled button whose text matches the regular expression `words`, among the elements that
/// the CSS selector `place` selects.
#[track_caller]
fn press(stage: &mut Stage, place: &str, words: &str) {
    let find = format!(
        "const found = [...document.querySelectorAll({place:?})].find((one) => \
             new RegExp({words:?}, 'i').test(one.innerText) && !one.disabled && one.getClientRects().length); \
         for (const one of document.querySelectorAll('[data-pressed]')) one.removeAttribute('data-pressed'); \
         found?.setAttribute('data-pressed', ''); return Boolean(found);"
    );
    lab::host::wait::until(&format!("a button {words}"), || {
        anyhow::ensure!(stage.browser.script(&find, &[])? == Value::Bool(true), "there is none in {place}");
        Ok(())
    })
    .unwrap();
    stage.browser.click("[data-pressed]").unwrap();
}

/// A user of the page can paste a change, plan it (which has no effect), apply it, see it verified on all
/// nodes, and roll it back, without a command line.
#[test]
fn a_change_is_planned_applied_and_rolled_back_by_clicks() {
    let mut stage = Stage::new();
    stage.load(view_named("plan"));
    stage.browser.fill("[data-view='plan'] textarea", MANIFEST).unwrap();
    press(&mut stage, "[data-view='plan'] button", "^make a plan");
    stage.browser.wait_for("[data-view='plan'] [data-action='apply']").unwrap();
    assert_eq!(
        stage.cluster.api.get("/v1/namespaces/shop/services/wishlist").unwrap().status,
        404,
        "it is only a plan"
    );
    let said = stage.browser.text("[data-view='plan']").unwrap();
    assert!(said.contains("wishlist") && said.contains("node1"), "{said}");
    stage.browser.expect_accessible().unwrap();
    stage.browser.picture("planned").unwrap();

    stage.browser.click("[data-view='plan'] [data-action='apply']:enabled").unwrap();
    stage.browser.wait_for("[data-view='change']").unwrap();
    stage.cluster.wait_verified("shop/wishlist").unwrap();
    stage.browser.picture("applied").unwrap();

    press(&mut stage, "[data-view='change'] button", "^undo this");
    stage.browser.wait_for("dialog[open] [data-action='apply']").unwrap();
    assert_eq!(
        stage.cluster.api.get("/v1/namespaces/shop/services/wishlist").unwrap().status,
        200,
        "it is only a plan"
    );
    stage.browser.expect_accessible().unwrap();
    stage.browser.click("dialog[open] [data-action='apply']").unwrap();
    stage.wait_api("/v1/services?limit=500", |answer| !answer.to_string().contains("wishlist"));
    stage.browser.expect_quiet_console().unwrap();
}

/// The packet trace form of the page shows the explanation of the API: the path of a packet, or the obstacle
/// that stops it.
#[test]
fn the_form_explains_what_becomes_of_a_packet() {
    let mut stage = Stage::new();
    let address = stage.cluster.cluster_ip("shop/cart", 0).unwrap();
    stage.load(view_named("explain"));
    stage.browser.fill("[data-view='explain'] input[name='destination']", &address.to_string()).unwrap();
    stage.browser.fill("[data-view='explain'] input[name='port']", "80").unwrap();
    press(&mut stage, "[data-view='explain'] button", "explain");
    stage
        .browser
        .wait_true(
            "the Service to be named",
            "/shop\\/cart/.test(document.querySelector('[data-view=explain]').innerText)",
        )
        .unwrap();
    let linked = stage.browser.script("return location.hash;", &[]).unwrap();
    assert!(linked.as_str().unwrap().contains(&address.to_string()), "the answer has a link: {linked}");
    stage.browser.expect_accessible().unwrap();
    stage.browser.expect_quiet_console().unwrap();
}
