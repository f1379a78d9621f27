//! End-to-end tests: containers of real containerds, started through the shim.

mod attacks;
mod crashes;
mod examples;
mod gpus;
mod hostile;
mod images;
mod lifecycle;
mod pods;
mod refusals;
mod snapshots;
mod userns;
