//! `GET /v1/rebalance`: moves that would spread the load balancer addresses evenly over the nodes. No state is changed;
//! `POST /v1/addresses/{name}/move` carries out one move.

use axum::extract::State;
use http::HeaderMap;
use model::{
    kinds::resource::Kind,
    observed::rollup::rebalance::{RebalancePlan, rebalance},
};
use utoipa::openapi::HttpMethod;

use crate::{
    base::{
        error::{Answer, Code},
        negotiate::{form, render},
    },
    context::sub_states::ReadState,
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::{Verb, on},
};

/// Registers the route of the plan that spreads addresses.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("planRebalance", Kind::Address.as_str(), "Plan an even distribution of addresses")
        .describe(
            "Returns the moves after which the numbers of addresses of the nodes differ as little as possible, and \
             changes nothing. Failures move addresses, and the return of a node does not move them back. Carry out the \
             moves one at a time by `POST /v1/addresses/{name}/move`, and continue when `status.owner` names the new \
             node. New connections are not affected by a move, but those that are established through the previous owner are reset.",
        )
        .answer::<RebalancePlan>(200, "Returned with the planned moves.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router.routes(
        Route::at("/v1/rebalance").on(HttpMethod::Get, on(Verb::List, Kind::Address), doc, read).done(),
    )
}

async fn read(State(state): State<ReadState>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let view = state.view();
    let renderer = view.renderer();
    Ok(render(form, &renderer.announcing(rebalance)))
}
