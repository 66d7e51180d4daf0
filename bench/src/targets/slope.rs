//! Check that the cost of a change does not grow with the number of Services: straight lines fitted to all
//! measurements. The target is an equivalence: the upper end of the confidence interval of the growth must be small,
//! so that noise does not help to meet it.

use serde_json::{Value, json};

use super::{figures::points, found::TargetResult};
use crate::statistics::fit::Line;

/// Kinds of change, each with the JSON field of its costs and its label on the page.
const SORTS: [(&str, &str); 2] = [("costs", "endpoints"), ("serviceCosts", "a Service")];
/// Number of Services up to which the target applies.
const SERVICES: f64 = 50_000.0;
/// Maximum growth at [`SERVICES`], as a fraction of the cost without other Services.
const GROWTH_MAX: f64 = 0.05;

pub(super) fn nftables(written: &Value) -> Option<TargetResult> {
    let quantities =
        [("/controlUs", "control", "µs"), ("/agentUs", "agent", "µs"), ("/feedBytes", "feed", "bytes")];
    found(written, "nftables", &quantities)
}

/// Returns the result of the target for ipvs mode, or `None` if measurements are missing. Uses counters only,
/// because times measured in the guest VM are not meaningful.
pub(super) fn ipvs(written: &Value) -> Option<TargetResult> {
    found(written, "ipvs", &[("/kernelMessages", "kernel", "messages")])
}

fn found(written: &Value, mode: &str, quantities: &[(&str, &str, &str)]) -> Option<TargetResult> {
    let fields = [("mode", json!(mode))];
    let most = points(written, &fields).filter_map(|point| point["services"].as_f64()).reduce(f64::max)?;
    let (mut measured, mut is_met) = (Vec::new(), most >= SERVICES);
    for (list, sort) in SORTS {
        let mut slopes = Vec::new();
        for (pointer, name, unit) in quantities {
            let line = line(written, &fields, list, pointer)?;
            let growth = line.growth_at_most(SERVICES);
            is_met &= growth <= GROWTH_MAX;
            // Turns a negative zero into zero.
            let slope = (line.slope * 1e3 * 100.0).round() / 100.0 + 0.0;
            let margin = line.slope_margin * 1e3;
            slopes.push(format!("{name} at most {:+.1} % ({slope:.2} ± {margin:.2} {unit})", growth * 100.0));
        }
        measured.push(format!("{sort}: {}", slopes.join(", ")));
    }
    Some(TargetResult {
        measured: measured.join("; "),
        beside: format!("in parentheses per additional 1,000 Services; 95 %, up to {most} Services"),
        is_met,
    })
}

fn line(written: &Value, fields: &[(&str, Value)], list: &str, pointer: &str) -> Option<Line> {
    let groups = points(written, fields).filter_map(|point| {
        let services = point["services"].as_f64()?;
        let costs = point.get(list)?.as_array()?;
        Some(costs.iter().filter_map(move |cost| Some((services, cost.pointer(pointer)?.as_f64()?))))
    });
    Line::through(&groups.flatten().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(most: u32, each: f64, noise: f64) -> Value {
        let point = |services: u32| {
            let costs: Vec<_> = [-1.0, 0.0, 1.0]
                .iter()
                .map(|sign| json!({"kernelMessages": 3.0 + noise * sign + each * f64::from(services)}))
                .collect();
            json!({"mode": "ipvs", "services": services, "costs": costs, "serviceCosts": costs})
        };
        json!({"points": [point(100), point(1_000), point(most)]})
    }

    #[test]
    fn a_cost_that_follows_the_change_is_met_and_one_that_follows_the_services_is_not() {
        let found = ipvs(&written(50_000, 0.0, 0.01)).unwrap();
        assert!(
            found.is_met && found.measured.starts_with("endpoints: kernel at most +0."),
            "{}",
            found.measured
        );
        assert!(!ipvs(&written(50_000, 1e-4, 0.01)).unwrap().is_met);
        let fewer = ipvs(&written(10_000, 0.0, 0.01)).unwrap();
        assert!(!fewer.is_met, "the largest number of Services is below that of the target");
        assert!(nftables(&written(50_000, 0.0, 0.01)).is_none());
    }

    #[test]
    fn a_cost_with_much_noise_is_not_met_although_no_growth_is_shown() {
        let found = ipvs(&written(50_000, 0.0, 1.0)).unwrap();
        assert!(!found.is_met, "{}", found.measured);
    }
}
