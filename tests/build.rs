//! Makes Rust of the part of the CRI that the tests speak; no protoc is needed for it.

fn main() {
    println!("cargo::rerun-if-changed=proto/cri.proto");
    protobuf_codegen::Codegen::new()
        .pure()
        .include("proto")
        .input("proto/cri.proto")
        .cargo_out_dir("cri")
        .run_from_script();
}
