//! Tests of one namespace at each of its limits while another namespace works on: writes, plans, repeated requests,
//! prunes and health decisions of the other namespace succeed.

mod health;
