//! What we make of the recorded cases, compared with what NVIDIA's programs made of them.

mod allowed;
mod compare;
mod differences;
mod discovery;
mod front;
mod generate;
mod hooks;
mod legacy;
mod lossless;
mod schema;
mod tally;
