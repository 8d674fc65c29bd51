//! Processes that end with their test.

use std::ops::{Deref, DerefMut};
use std::process::{Child, Output};

/// A process that is killed with its test, also if that fails. If it lived on, it would keep the test's output open, and whoever
/// reads that would wait for ever.
pub struct Running(Option<Child>);

impl Running {
    pub fn new(child: Child) -> Self {
        Self(Some(child))
    }

    /// Waits until it ends; returns what it wrote into pipes.
    pub fn output(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
