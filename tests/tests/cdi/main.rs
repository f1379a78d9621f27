//! Devices of CDI: where each name leads, what its edits become, and who is refused.

mod described;
mod foreign_hooks;
mod just_in_time;
mod scene;
mod stale;
