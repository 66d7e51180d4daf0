//! Load generators: simulated agents, clients of feeds (streams of state to agents) and watches, HTTP
//! clients, and a client that measures outages.

pub mod feed_load;
pub mod http_load;
pub mod keep_alive;
pub mod outage;
pub mod simulated_agents;
