//! The harness of the end-to-end tests: private containerds of three releases, images made on the
//! spot, a simulated GPU node, and a look at what containers see and what they leave behind.
//!
//! It is test code: what goes wrong here panics with the words of the program that failed.

#![allow(missing_debug_implementations)]

mod build;
mod containerd;
pub mod corpus;
pub mod cri;
mod ctr;
mod drivers;
mod events;
mod image;
mod namespace;
mod node;
pub mod reference;
mod release;
mod residue;
mod sight;
pub mod tree;

pub use build::{product, scratch};
pub use containerd::{Containerd, Setup, eventually};
pub use ctr::{Output, Run, runtime};
pub use drivers::drivers;
pub use events::{Begun, Events};
pub use image::{BUSYBOX, BUSYBOX_LAYERED, GLIBC, GLIBC_LAYERED, Image};
pub use node::{Gpu, Node};
pub use release::{Release, crun, newer_crun};
pub use sight::{Cuda, Sight};

/// Makes of each named `fn(Release)` one test for each containerd.
#[macro_export]
macro_rules! on_each_containerd {
    ($($name:ident),+ $(,)?) => { $(
        mod $name {
            #[test]
            fn installed() {
                super::$name($crate::Release::Installed);
            }
            #[test]
            fn v1_7() {
                super::$name($crate::Release::V1_7);
            }
            #[test]
            fn v2_1() {
                super::$name($crate::Release::V2_1);
            }
        }
    )+ };
}
