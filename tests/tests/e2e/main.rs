//! End-to-end tests: containers of real containerds, started through the shim.

mod attacks;
mod capabilities;
mod cdi;
mod crashes;
mod engines;
mod examples;
mod front;
mod gpus;
mod hooks;
mod hostile;
mod images;
mod lifecycle;
mod pods;
mod policy;
mod refusals;
mod snapshots;
mod userns;
