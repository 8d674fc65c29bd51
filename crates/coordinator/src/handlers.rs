//! One handler per file. The head of each file says what the handler checks, changes and answers.

pub mod abort_put;
pub mod backup;
pub mod begin_put;
pub mod cancel_job;
pub mod codes;
pub mod command_node;
pub mod commit_put;
pub mod confirm_quarantine;
pub mod encode;
pub mod find_code;
pub mod finish_rebuild;
pub mod follow_job;
pub mod forget_node;
pub mod health;
pub mod heartbeat;
pub mod jobs;
pub mod list;
pub mod lookup;
pub mod more_stripes;
pub mod move_stripe;
pub mod nodes;
pub mod quarantine;
pub mod rates;
pub mod rebuild;
pub mod register;
pub mod register_code;
pub mod remove;
pub mod remove_code;
pub mod renew_put;
pub mod repair;
pub mod report_bad;
pub mod report_blocks;
pub mod restore_block;
pub mod scrub;
pub mod set_rates;
pub mod space;
pub mod status;

#[cfg(test)]
pub(crate) mod tests;
