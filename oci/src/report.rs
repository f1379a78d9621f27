//! The record of a decision: what was asked, what was given, and the reason beside each item.

use serde::Serialize;

/// The decision record.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {}
