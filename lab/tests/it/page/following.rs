//! Test that events in the cluster appear on the page without any user interaction.

use lab::fixtures::teams as demo;

use super::stage::{Stage, view_named};

const CHECKOUT: &str = "#problems [data-problem*='checkout']";

/// The failure of an endpoint, the loss of a node, and an outage of the control server each appear on the
/// page without user interaction, and disappear from it when they are over.
#[test]
fn deaths_of_an_endpoint_a_node_and_the_control_server_are_seen_without_touching_the_page() {
    let mut stage = Stage::new();
    stage.load(view_named("overview"));
    assert_eq!(stage.browser.count("#problems [data-problem]").unwrap(), 0, "nothing is wrong at first");
    // Marks the document, to detect a reload.
    stage.browser.script("window.isTheSame = true;", &[]).unwrap();

    demo::fall_ill(&mut stage.cluster).unwrap();
    stage.browser.wait_for(CHECKOUT).unwrap();
    let said = stage.browser.text(CHECKOUT).unwrap();
    assert!(said.contains("shop/checkout"), "{said}");
    let unhealthy =
        "document.querySelector(\"[data-field='/v1/overview#/totals/endpoints/ready']\") !== null";
    stage.browser.wait_true("the endpoints to be counted", unhealthy).unwrap();

    let (_, name, machine) = demo::ILL;
    stage.cluster.topology.serve(&format!("{name}-{machine}"), lab::fixtures::scene::BACKEND_PORT).unwrap();
    stage
        .browser
        .wait_true("the problem to be over", &format!("!document.querySelector(\"{CHECKOUT}\")"))
        .unwrap();

    stage.cluster.agents.get_mut("node2").unwrap().kill();
    stage.browser.wait_for("[data-view='overview'] [data-key='node2'][data-state='disconnected']").unwrap();
    stage.browser.wait_for("#problems [data-problem*='node2']").unwrap();
    stage.cluster.start_agent_again("node2").unwrap();
    stage.browser.wait_for("[data-view='overview'] [data-key='node2'][data-state='converged']").unwrap();
    stage.browser.expect_quiet_console().unwrap();

    stage.cluster.server.kill();
    stage.browser.wait_for("#live[data-state='lost']").unwrap();
    stage.browser.wait_for(".banner").unwrap();
    stage.browser.picture("lost").unwrap();
    stage.browser.expect_accessible().unwrap();
    stage.cluster.start_control_again().unwrap();
    stage.browser.wait_for("#live[data-state='live']").unwrap();
    stage
        .browser
        .wait_true("the banner to be gone", "!document.querySelector('.banner.tone-worst')")
        .unwrap();
    stage.browser.wait_true("the same document to be shown", "window.isTheSame === true").unwrap();
    // The server outage is the only expected error.
    let mut complaints = stage.browser.take_console().unwrap();
    complaints.retain(|line| !line.starts_with("network:"));
    assert_eq!(complaints, Vec::<String>::new());
}
