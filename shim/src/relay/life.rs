//! What is known of the inner shim's life and of the connections that depend on it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::frame::answer::Refusal;

/// Shared by all threads of a relay.
#[derive(Debug, Default)]
pub(super) struct Life {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The inner shim has answered something, so it was up.
    answered: bool,
    /// The inner shim has ended, and this is why.
    ended: Option<Refusal>,
    /// Somebody was told why.
    told: bool,
    connections: usize,
}

impl Life {
    pub(super) fn answered(&self) {
        self.shared.lock().answered = true;
    }

    pub(super) fn has_answered(&self) -> bool {
        self.shared.lock().answered
    }

    /// The inner shim has ended. Whether it did without ever having answered.
    pub(super) fn end(&self, why: Refusal) -> bool {
        let mut state = self.shared.lock();
        state.ended = Some(why);
        self.shared.changed.notify_all();
        !state.answered
    }

    /// Why the inner shim has ended, if that is known before `patience` runs out. A closed
    /// connection is seen earlier than the end of the process.
    pub(super) fn why(&self, patience: Duration) -> Option<Refusal> {
        self.shared.wait(patience, |state| state.ended.is_some()).ended.clone()
    }

    /// Somebody was told why the inner shim has ended.
    pub(super) fn told(&self) {
        self.shared.lock().told = true;
        self.shared.changed.notify_all();
    }

    /// Returns when somebody was told, and heard it out, or after `patience`.
    pub(super) fn wait_until_told(&self, patience: Duration) {
        drop(self.shared.wait(patience, |state| state.told && state.connections == 0));
    }

    /// Returns when no connection is open, or after `patience`.
    pub(super) fn wait_until_alone(&self, patience: Duration) {
        drop(self.shared.wait(patience, |state| state.connections == 0));
    }

    /// A connection is open as long as its guest is held.
    pub(super) fn enter(&self) -> Guest {
        self.shared.lock().connections += 1;
        Guest { shared: Arc::clone(&self.shared) }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, patience: Duration, until: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        self.changed
            .wait_timeout_while(self.lock(), patience, |state| !until(state))
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Guest {
    shared: Arc<Shared>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.shared.lock().connections -= 1;
        self.shared.changed.notify_all();
    }
}
