//! End-to-end tests: containers of real containerds, started through the shim.

mod examples;
mod lifecycle;
