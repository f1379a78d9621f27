//! End-to-end tests
