"""Which stories and tests catch the mistakes that are put into the production code."""

from __future__ import annotations

from support.mutants.alarms import (
    compact_notes_that_an_older_index_needs,
    compact_notes_that_are_needed,
    count_notes_without_their_batches,
    delete_what_waits,
    deliver_before_the_index_knows_the_term_before,
    deliver_before_the_index_knows_what_was_noted,
    deliver_early,
    deliver_what_arrived_first_first,
    forget_cancellations_that_are_not_indexed,
    forget_transactions_that_were_open,
    forget_what_was_ended_out_of_order,
    report_deliveries_that_are_not_committed,
    schedule_what_is_not_committed,
)
from support.mutants.brokers import (
    Mutant,
    acknowledge_before_replication,
    acknowledge_repeats_without_a_lease,
    answer_administrators_before_it_is_done,
    compact_what_is_clean_again,
    cut_a_log_at_a_gap_between_segments,
    cut_logs_on_the_loop,
    do_not_raise_the_leader_epoch,
    elect_outside_the_in_sync_set,
    followers_forget_producers,
    forget_commits_when_coordinators_move,
    forget_deletions_that_a_replica_has_not_seen,
    forget_logs_that_cannot_be_opened,
    forget_producers_by_the_time_of_their_messages,
    forget_refused_batches,
    forget_what_coordinators_knew,
    high_watermark_without_the_in_sync_replicas,
    keep_members_whose_session_has_ended,
    leave_out_a_batch_whose_beginning_was_deleted,
    measure_time_by_the_wall,
    no_sync_before_being_left_alone,
    no_sync_where_nobody_else_is_in_sync,
    number_no_generations,
    refuse_for_good_without_asking_followers,
    say_nothing_of_lost_power,
    serve_beyond_the_high_watermark,
    serve_committed_readers_undecided_messages,
    shrink_before_the_store_agrees,
    skip_truncation,
    take_any_batch_with_known_numbers_for_a_repeat,
    take_commits_of_whoever_asks,
)
from support.mutants.compaction import (
    give_members_all_offsets_of_widened_batches,
    leave_followers_behind_that_end_within_a_batch,
    widen_batches_into_other_epochs,
    widen_batches_over_what_is_not_due,
    widen_batches_that_make_no_sense,
)
from support.mutants.copies import (
    close_copied_partitions_of_other_leaders,
    close_partitions_before_they_are_copied,
    copy_from_the_beginning_in_each_term,
    copy_what_was_aborted,
    take_messages_while_the_rest_is_copied,
)
from support.mutants.delays import (
    forget_delayed_messages,
    hide_messages_until_the_clock_is_as_late_again,
    show_delayed_messages_at_once,
)
from support.mutants.early_fencing import (
    count_time_outs_as_refusals,
    end_any_registration_of_the_broker,
    judge_without_a_bound,
    leave_the_lease_to_who_is_judged,
)
from support.mutants.folds import (
    end_transactions_only_where_messages_go_now,
    end_transactions_only_where_they_were_named,
    forget_refused_batches_while_others_wait,
    forget_repeats_in_closed_logs,
    forget_the_numbers_of_closed_partitions,
    gather_only_the_last_batch,
    give_folded_batches_no_alias,
    hand_over_by_any_connection,
    hand_over_while_those_before_are_under_way_elsewhere,
    let_markers_hide_the_numbers_of_closed_partitions,
    let_partitions_go_without_the_numbers_of_their_producers,
    number_folds_alike,
    open_partitions_while_batches_are_under_way,
    open_partitions_without_the_numbers_of_their_producers,
    pass_on_before_all_is_committed,
    pass_on_while_others_may_have_more,
    refuse_commits_for_partitions_that_are_gone,
    take_away_partitions_that_are_not_empty,
    take_batches_in_closed_partitions,
    take_markers_of_coordinators_that_know_nothing_of_the_fold,
    take_markers_of_coordinators_that_know_nothing_of_the_growth,
    take_what_goes_elsewhere_now,
    tell_numbers_before_hearing_that_they_stay,
)
from support.mutants.logs import (
    never_open_again_what_the_system_refused,
    read_batches_unchecked,
    take_missing_indexes_for_empty_ones,
)
from support.mutants.quotas import tell_clients_to_wait_and_read_on
from support.mutants.restores import (
    believe_restored_in_sync_sets,
    elect_by_the_first_claim,
    elect_without_what_was_committed,
    give_out_producer_ids_again,
)
from support.mutants.shares import (
    answer_acknowledgements_before_they_are_persisted,
    count_unsent_deliveries,
    deliver_before_the_beginning_is_persisted,
    deliver_what_is_not_committed_yet,
    deliver_what_was_aborted,
    deliver_without_a_limit,
    do_not_fence_leaders_that_were_replaced,
    do_not_fence_states_that_were_reset,
    drop_dead_letters_that_cannot_be_written,
    give_each_partition_to_one_member,
    give_up_the_neighbours_of_damaged_batches,
    keep_what_ended_sessions_held,
    move_dead_letters_without_a_journal,
    notice_lost_messages_in_the_first_term_only,
    pass_over_what_has_the_offsets_of_lost_messages,
    pass_records_that_were_released,
    redeliver_before_it_is_persisted,
    renew_locks_without_effect,
)
from support.mutants.store_values import (
    end_transactions_without_the_markers_of_unreadable_topics,
    lead_unjudged_logs,
    take_the_unreadable_for_absent,
)
from support.mutants.stores import (
    believe_a_store_that_went_back,
    believe_any_store,
    delete_logs_by_absence,
    take_producer_ids_by_any_answer,
)
from support.mutants.tiers import (
    begin_share_groups_at_the_local_log,
    copy_without_the_aborted_transactions,
    delete_local_segments_before_the_manifest_has_them,
    serve_a_lost_history,
    show_aborted_messages_from_the_store,
    take_lost_manifests_for_none,
    write_manifests_over_those_of_others,
)
from support.mutants.views import (
    begin_too_late_in_the_cache_of_views,
    copy_aborted_messages,
    fill_past_a_message,
    move_readers_of_views_past_a_message,
    show_in_views_what_is_not_committed,
)

MUTANTS: dict[Mutant, str] = {
    acknowledge_before_replication: "deposed-leaders",
    high_watermark_without_the_in_sync_replicas: "deposed-leaders",
    skip_truncation: "deposed-leaders",
    do_not_raise_the_leader_epoch: "deposed-leaders",
    followers_forget_producers: "deposed-leaders",
    forget_producers_by_the_time_of_their_messages: "deposed-leaders",
    serve_beyond_the_high_watermark: "deposed-leaders",
    cut_logs_on_the_loop: "deposed-leaders",
    take_the_unreadable_for_absent: "unreadable-values",
    end_transactions_without_the_markers_of_unreadable_topics: "unreadable-values",
    lead_unjudged_logs: "unreadable-power-cuts",
    never_open_again_what_the_system_refused: "refused-openings",
    elect_outside_the_in_sync_set: "lonely-leaders",
    shrink_before_the_store_agrees: "cut-off-leaders",
    no_sync_where_nobody_else_is_in_sync: "lost-power",
    say_nothing_of_lost_power: "power-cuts",
    count_time_outs_as_refusals: "refusals",
    forget_refused_batches: "refusals",
    judge_without_a_bound: "refusals",
    leave_the_lease_to_who_is_judged: "wrong-refusals",
    believe_restored_in_sync_sets: "restored-store",
    elect_by_the_first_claim: "restored-store",
    elect_without_what_was_committed: "restored-store",
    give_out_producer_ids_again: "restored-store",
    acknowledge_repeats_without_a_lease: "doubts",
    believe_any_store: "wrong-stores",
    believe_a_store_that_went_back: "wrong-stores",
    cut_a_log_at_a_gap_between_segments: "copied-keys",
    compact_what_is_clean_again: "copied-keys",
    serve_committed_readers_undecided_messages: "reused-numbers",
    take_any_batch_with_known_numbers_for_a_repeat: "reused-numbers",
    take_missing_indexes_for_empty_ones: "lost-indexes",
    forget_what_coordinators_knew: "coordinators",
    forget_commits_when_coordinators_move: "coordinators",
    keep_members_whose_session_has_ended: "coordinators",
    take_commits_of_whoever_asks: "coordinators",
    number_no_generations: "coordinators",
    answer_administrators_before_it_is_done: "coordinators",
    measure_time_by_the_wall: "clocks",
    answer_acknowledgements_before_they_are_persisted: "deposed-shares",
    count_unsent_deliveries: "away-coordinators",
    do_not_fence_leaders_that_were_replaced: "deposed-shares",
    pass_records_that_were_released: "deposed-shares",
    deliver_before_the_beginning_is_persisted: "late-shares",
    renew_locks_without_effect: "long-work",
    keep_what_ended_sessions_held: "long-locks",
    deliver_what_was_aborted: "long-locks",
    deliver_what_is_not_committed_yet: "long-locks",
    pass_over_what_has_the_offsets_of_lost_messages: "lost-records",
    notice_lost_messages_in_the_first_term_only: "lost-records",
    deliver_without_a_limit: "dead-letters",
    move_dead_letters_without_a_journal: "dead-letters",
    show_delayed_messages_at_once: "delays",
    forget_delayed_messages: "delays",
    hide_messages_until_the_clock_is_as_late_again: "delays",
    move_readers_of_views_past_a_message: "views",
    show_in_views_what_is_not_committed: "views",
    deliver_early: "alarms",
    deliver_what_arrived_first_first: "alarms",
    schedule_what_is_not_committed: "alarms",
    forget_transactions_that_were_open: "alarms",
    deliver_before_the_index_knows_the_term_before: "alarms",
    delete_what_waits: "short-alarms",
    begin_too_late_in_the_cache_of_views: "views",
    copy_aborted_messages: "fills",
    fill_past_a_message: "fills",
    forget_the_numbers_of_closed_partitions: "folded-partitions",
    forget_repeats_in_closed_logs: "folded-partitions",
    give_folded_batches_no_alias: "folded-partitions",
    end_transactions_only_where_they_were_named: "folded-partitions",
    refuse_commits_for_partitions_that_are_gone: "gone-partitions",
    take_away_partitions_that_are_not_empty: "gone-partitions",
    open_partitions_without_the_numbers_of_their_producers: "growing-partitions",
    gather_only_the_last_batch: "growing-partitions",
    number_folds_alike: "growing-partitions",
    end_transactions_only_where_messages_go_now: "growing-partitions",
    close_partitions_before_they_are_copied: "copied-partitions",
    tell_clients_to_wait_and_read_on: "quotas",
    delete_local_segments_before_the_manifest_has_them: "tiers",
    copy_without_the_aborted_transactions: "tiers",
    write_manifests_over_those_of_others: "deposed-tiers",
    serve_a_lost_history: "lost-tiers",
    take_lost_manifests_for_none: "lost-manifests",
    begin_share_groups_at_the_local_log: "tiered-readers",
    show_aborted_messages_from_the_store: "tiered-readers",
}
"""Each with the plot whose stories show it."""

BEGIN_WITH: dict[Mutant, int] = {
    never_open_again_what_the_system_refused: 31,
    believe_a_store_that_went_back: 3,
    do_not_raise_the_leader_epoch: 10,
    elect_outside_the_in_sync_set: 3,
    serve_committed_readers_undecided_messages: 7,
    keep_members_whose_session_has_ended: 2,
    take_commits_of_whoever_asks: 2,
    measure_time_by_the_wall: 3,
    answer_acknowledgements_before_they_are_persisted: 3,
    count_unsent_deliveries: 3,
    do_not_fence_leaders_that_were_replaced: 2,
    pass_records_that_were_released: 3,
    notice_lost_messages_in_the_first_term_only: 2,
    deliver_before_the_beginning_is_persisted: 8,
    move_dead_letters_without_a_journal: 3,
    move_readers_of_views_past_a_message: 4,
    forget_transactions_that_were_open: 2,
    delete_what_waits: 17,
    judge_without_a_bound: 3,
    forget_refused_batches: 4,
    leave_the_lease_to_who_is_judged: 4,
    elect_by_the_first_claim: 5,
    elect_without_what_was_committed: 2,
    number_folds_alike: 5,
    end_transactions_only_where_messages_go_now: 3,
}
"""Of the stories of its plot the one that showed it when this was written, to be quick; the others follow."""

CAUGHT_BY_TESTS: dict[Mutant, str] = {
    end_any_registration_of_the_broker: "broker/cluster/test_refused_brokers.py::"
    "test_a_broker_that_registers_anew_while_it_is_judged_keeps_its_registration",
    report_deliveries_that_are_not_committed: "broker/delays/test_delays_disk.py::"
    "test_a_delivery_of_which_nobody_knows_whether_it_is_committed_is_not_acknowledged",
    delete_logs_by_absence: "broker/replication/test_logs_let_go.py::"
    "test_a_topic_that_a_broker_finds_missing_is_put_aside",
    take_producer_ids_by_any_answer: "sim/test_sim_producer_ids.py::"
    "test_an_older_state_of_the_store_that_others_write_to_gives_no_producer_ids",
    read_batches_unchecked: "storage/test_checked_batches.py::"
    "test_a_reader_that_cannot_do_without_stops_at_damage",
    give_each_partition_to_one_member: "core/groups/share/test_share_assignor.py::"
    "test_as_many_members_as_partitions_have_two_each",
    let_partitions_go_without_the_numbers_of_their_producers: "broker/produce/test_gone_partitions.py::"
    "test_the_numbers_of_producers_outlive_their_partition",
    refuse_for_good_without_asking_followers: "broker/produce/test_refusals_replicated.py::"
    "test_a_deposed_leader_that_hears_nothing_refuses_nothing_for_good",
    no_sync_before_being_left_alone: "broker/replication/test_lone_leader.py::"
    "test_what_the_dead_had_is_synced_when_they_are_missed",
    forget_deletions_that_a_replica_has_not_seen: "broker/replication/test_deletions_replicated.py::"
    "test_a_replica_that_was_away_hears_of_a_deletion_however_late",
    leave_followers_behind_that_end_within_a_batch: "broker/replication/test_copies_of_compacted_logs.py::"
    "test_a_follower_of_a_compacted_log_ends_with_its_contents",
    widen_batches_into_other_epochs: "broker/replication/test_copies_of_compacted_logs.py::"
    "test_a_follower_of_a_compacted_log_ends_with_its_contents",
    widen_batches_that_make_no_sense: "storage/test_cleaner.py::"
    "test_a_batch_that_lies_about_its_offsets_does_not_come_true_at_the_end_of_a_segment",
    widen_batches_over_what_is_not_due: "broker/upkeep/test_compacted_topics.py::"
    "test_a_message_that_was_due_stays_visible_when_later_ones_go",
    give_members_all_offsets_of_widened_batches: "broker/shares/test_share_compacted.py::"
    "test_a_member_holds_nothing_of_the_offsets_that_compaction_has_added_to_a_batch",
    forget_logs_that_cannot_be_opened: "broker/upkeep/test_unopened_partitions.py::"
    "test_a_clean_stop_forgets_nothing_of_a_partition_that_could_not_be_opened",
    leave_out_a_batch_whose_beginning_was_deleted: "broker/replication/test_delete_records_replicated.py::"
    "test_a_new_replica_has_the_rest_of_a_batch_whose_beginning_was_deleted",
    deliver_before_the_index_knows_what_was_noted: "broker/delays/test_delays_steady.py::"
    "test_what_is_due_sooner_is_delivered_sooner_although_it_came_late",
    count_notes_without_their_batches: "broker/delays/test_note_reading.py::"
    "test_a_note_that_was_left_alone_does_not_count",
    forget_cancellations_that_are_not_indexed: "core/delays/test_unindexed.py::"
    "test_what_a_note_ends_is_known_until_the_index_has_it",
    compact_notes_that_are_needed: "broker/delays/test_delays_upkeep.py::"
    "test_compaction_keeps_the_notes_that_something_needs",
    compact_notes_that_an_older_index_needs: "broker/delays/test_delays_upkeep.py::"
    "test_an_older_index_finds_nothing_that_compaction_has_removed",
    forget_what_was_ended_out_of_order: "broker/delays/test_note_order.py::"
    "test_nothing_is_cut_that_an_index_made_anew_would_miss",
    redeliver_before_it_is_persisted: "core/shares/partition/test_share_writes.py::"
    "test_the_first_delivery_waits_for_nothing_and_a_redelivery_for_a_write_of_those_before",
    give_up_the_neighbours_of_damaged_batches: "broker/shares/test_share_damage.py::"
    "test_a_damaged_batch_is_given_up_alone_with_its_letter",
    do_not_fence_states_that_were_reset: "core/shares/coordinator/test_share_coordinator.py::TestWrite::"
    "test_only_to_the_state_that_was_read",
    drop_dead_letters_that_cannot_be_written: "broker/shares/test_dead_letters.py::"
    "test_messages_that_are_too_large_for_the_target_go_without_their_value",
    let_markers_hide_the_numbers_of_closed_partitions: "core/partition/test_closed_partition.py::"
    "test_a_marker_does_not_hide_the_numbers_of_the_closed_partition",
    pass_on_before_all_is_committed: "broker/replication/test_folded_cluster.py::"
    "test_nothing_is_passed_on_before_all_of_the_closed_log_is_committed",
    pass_on_while_others_may_have_more: "broker/replication/test_folded_cluster.py::"
    "test_nothing_is_passed_on_while_another_replica_may_have_more",
    hand_over_while_those_before_are_under_way_elsewhere: "broker/produce/test_handover_order.py::"
    "test_a_batch_waits_until_those_before_it_are_answered_elsewhere",
    hand_over_by_any_connection: "broker/produce/test_handover_order.py::"
    "test_what_is_sent_behind_a_batch_does_not_leave_by_another_connection",
    forget_refused_batches_while_others_wait: "broker/produce/test_refused_parts.py::"
    "test_one_that_was_taken_in_a_term_that_has_ended",
    open_partitions_while_batches_are_under_way: "broker/replication/test_growing_cluster.py::"
    "test_a_partition_waits_for_the_answers_to_what_it_has_passed_on",
    close_copied_partitions_of_other_leaders: "broker/replication/test_copied_partitions.py::"
    "test_a_leader_that_was_replaced_does_not_close_what_its_successor_has_written_to",
    take_messages_while_the_rest_is_copied: "broker/replication/test_copied_partitions.py::"
    "test_a_leader_that_was_replaced_does_not_close_what_its_successor_has_written_to",
    copy_from_the_beginning_in_each_term: "broker/replication/test_copied_partitions.py::"
    "test_a_broker_that_dies_while_it_copies_leaves_the_rest_to_the_next",
    copy_what_was_aborted: "broker/replication/test_copied_partitions.py::"
    "test_a_transaction_that_is_open_goes_on_and_new_ones_wait_for_it",
    take_batches_in_closed_partitions: "broker/produce/test_folded_partitions.py::"
    "test_requests_in_flight_when_the_partition_is_closed_keep_their_order",
    take_markers_of_coordinators_that_know_nothing_of_the_fold: "broker/replication/test_folded_cluster.py::"
    "test_a_coordinator_that_has_not_heard_of_the_fold_does_not_end_half_a_transaction",
    take_markers_of_coordinators_that_know_nothing_of_the_growth: "broker/replication/"
    "test_growing_cluster.py::test_a_marker_that_was_sent_before_the_change_is_refused_behind_it",
    take_what_goes_elsewhere_now: "broker/replication/test_growing_cluster.py::"
    "test_a_leader_that_has_not_heard_of_it_cannot_pass_on",
    tell_numbers_before_hearing_that_they_stay: "broker/replication/test_growing_cluster.py::"
    "test_a_partition_waits_for_one_that_has_not_heard_of_it",
}
"""What few stories meet, because it needs faults in a rare order: the tests that make that order."""

CAUGHT_IN_ORDINARY_STORIES: dict[Mutant, int] = {
    acknowledge_before_replication: 2,
    high_watermark_without_the_in_sync_replicas: 2,
    skip_truncation: 18,
    do_not_raise_the_leader_epoch: 2,
    followers_forget_producers: 4,
    serve_committed_readers_undecided_messages: 2,
    forget_what_coordinators_knew: 2,
    serve_beyond_the_high_watermark: 6,
    forget_commits_when_coordinators_move: 2,
    take_commits_of_whoever_asks: 12,
    number_no_generations: 5,
    forget_producers_by_the_time_of_their_messages: 1,
    measure_time_by_the_wall: 19,
    keep_what_ended_sessions_held: 18,
    pass_records_that_were_released: 6,
    deliver_without_a_limit: 3,
    deliver_what_was_aborted: 29,
    show_delayed_messages_at_once: 2,
}
"""Each with the seed to begin with: one that caught it when this was written, to be quick. A change of the
broker makes other stories of the same seeds; then one of those that follow catches it."""
