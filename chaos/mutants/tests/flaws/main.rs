//! What each mutant does wrong, and that it does the rest right: one program, which is linked once.

mod adopted_kept;
mod balancers_owned;
mod choices_forgotten;
mod cut_unnoticed;
mod empty_left_out;
mod endpoints_kept;
mod flows_kept;
mod foreign_removed;
mod growing;
mod host_once;
mod kubernetes_left_out;
mod last_slice_wins;
mod locked_out;
mod looking;
mod node_ports_taken;
mod one_way;
mod prefix_release;
mod refill_doubled;
mod refill_ignored;
mod replies_untranslated;
mod restored_by_prefix;
mod rewritten_ignored;
mod shut_out;
mod stale_kept;
mod starts_twice;
mod wide_release;
