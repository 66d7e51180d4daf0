//! Load generators: simulated agents, feeds, HTTP clients, and outage meters.

pub mod feed_load;
pub mod http_load;
pub mod keep_alive;
pub mod outage;
pub mod simulated_agents;
