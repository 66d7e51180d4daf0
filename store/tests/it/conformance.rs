//! Generates one test for each conformance scenario and each type of store.

macro_rules! scenarios {
    ($lane:ident, $store:ident, $($file:ident::{$($scenario:ident),* $(,)?})*) => {
        mod $lane {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                crate::suite::$file::$scenario(crate::suite::Place::$store()).await;
            })*)*
        }
    };
}

macro_rules! every_scenario {
    ($store:ident) => {
        scenarios! {
            $store, $store,
            scenarios::{
                a_fresh_store_is_empty_and_its_epoch_is_its_birth,
                load_after_a_commit_gives_what_was_committed,
                a_deleted_object_is_gone_and_its_last_state_is_in_the_log,
                one_commit_may_delete_an_object_and_add_it_again,
                a_stale_commit_is_refused_and_changes_nothing,
                a_malformed_group_is_refused_whole,
                large_groups_do_what_small_ones_do,
                a_group_beyond_a_limit_is_refused_whole,
                of_concurrent_commits_exactly_one_wins,
                a_load_during_commits_sees_whole_groups,
                a_cancelled_commit_is_there_whole_or_not_at_all,
                changes_resume_anywhere_in_order_and_in_pieces,
                the_log_keeps_the_newest_commits_and_says_where_it_begins,
                statuses_are_replaced_and_removed_and_move_no_revision,
                statuses_beyond_a_limit_are_refused,
                a_new_epoch_keeps_the_state_and_refuses_the_old_life,
                nobody_else_writes_to_an_exclusive_store,
            }
            audit::{
                audit_is_kept_with_its_commit_and_listed_newest_first,
                audit_is_bounded_by_kind_and_by_age,
            }
            vault::{
                vault_records_change_only_for_who_knows_their_version,
                of_concurrent_vault_writes_exactly_one_wins,
                vault_records_beyond_a_limit_are_refused,
            }
            contents::{
                contents_put_in_place_of_others_are_read_back_in_a_new_life,
                contents_are_refused_whole_when_somebody_wrote_or_they_contradict_themselves,
            }
            history::{
                history_is_kept_with_its_commit_and_listed_newest_first,
                history_is_filtered_by_what_it_changed,
                history_that_belongs_to_no_commit_is_refused_whole,
                history_is_bounded_and_says_where_it_begins,
                a_cancelled_commit_has_its_history_or_is_not_there,
            }
        }
    };
}

/// Generates the tests of the scenarios for stores that several processes share.
macro_rules! shared_scenario {
    ($lane:ident, $store:ident) => {
        scenarios! {
            $lane, $store,
            shared::{
                of_two_servers_exactly_one_wins_and_the_other_hears_of_it,
                one_server_leads_and_another_when_it_resigns_or_is_gone,
            }
        }
    };
}

every_scenario!(memory);
every_scenario!(sqlite);
every_scenario!(etcd);
every_scenario!(toy);
shared_scenario!(shared_etcd, etcd);
shared_scenario!(shared_toy, toy);
