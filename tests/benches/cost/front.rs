//! What the OCI-runtime front costs: a call that only passes through it, beside runc's own, and the
//! work before a container is created, with a runtime behind it that does nothing.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tests::{GLIBC, Node, product};

use crate::ROUNDS;
use crate::table::{compare, timed, title};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(crate) fn measure() {
    title("the OCI-runtime front");
    let node = &Node::new(8);
    let dir = tempfile::tempdir().expect("a directory");
    let settings = |name: &str, runtime: &str| {
        let file = dir.path().join(name);
        let host = node.root();
        let text = format!(
            "[nvidia-container-runtime]\nruntimes = ['{runtime}']\n\
             [nvidia-shim]\nhost-root = '{}'\n",
            host.display()
        );
        fs::write(&file, text).expect("config.toml");
        file
    };
    let (runc, nothing) = (settings("runc.toml", "runc"), settings("nothing.toml", "true"));
    let call = |program: &Path, settings: &Path, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words).env("PATH", PATH).env("NVIDIA_CTK_CONFIG_FILE_PATH", settings);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        timed(|| {
            command.status().expect("a runtime");
        })
    };
    let front = product().join("nvidia-container-runtime");
    let state = ["state", "nvs-no-such-container"];
    compare(
        ROUNDS,
        &mut [
            ("state, runc", "", &mut || call(Path::new("runc"), &runc, &state)),
            ("state, front and runc", "", &mut || call(&front, &runc, &state)),
        ],
    );

    let bundle = |name: &str, value: &str| {
        let bundle = dir.path().join(name);
        GLIBC.unpack(&bundle.join("rootfs"));
        let spec =
            format!(r#"{{"process":{{"env":["NVIDIA_VISIBLE_DEVICES={value}"]}},"linux":{{}}}}"#);
        let words = ["create".to_owned(), "--bundle".to_owned(), bundle.display().to_string()];
        (bundle.join("config.json"), spec, words)
    };
    let create = |(config, spec, words): &(std::path::PathBuf, String, [String; 3])| {
        fs::write(config, spec).expect("config.json");
        let words = words.each_ref().map(String::as_str);
        call(&front, &nothing, &words)
    };
    let (void, all) = (bundle("void", "void"), bundle("all", "all"));
    compare(
        ROUNDS,
        &mut [
            ("nothing", "", &mut || call(Path::new("true"), &nothing, &[])),
            ("create, asks for nothing", "", &mut || create(&void)),
            ("create, 8 GPUs", "", &mut || create(&all)),
        ],
    );
}
