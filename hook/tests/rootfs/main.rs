//! Fix-ups on real mounts: what the container sees, what stays untouched, what an image that
//! means harm can reach. Needs root, as the product does.

mod attacks;
mod compat;
mod container;
mod fixture;
mod glibc;
mod hostile;
mod layer;
mod restart;
mod work;
