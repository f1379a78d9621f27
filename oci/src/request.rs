//! What a container asks for: typed text (environment, mounts, annotations) → meant.

/// What was asked, and by what.
#[derive(Clone, Debug)]
pub struct Request {}
