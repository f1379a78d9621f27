//! The worst that a container can write: as much as a program can be started with, of what is read.
//! What is done with it is bounded and tested beside the code; here is what that takes.

use nvidia_oci::{Config, ConfigSource, Handler, Image, Spec, plan, request};
use serde_json::{Value, json};
use tests::tree::{Tree, hosts};

use crate::table::{line, timed, title};

const LIMIT: &str = "worst 50 ms";
const ROUNDS: usize = 5;
/// As `exec` of the kernel limits a string and all of them.
const STRING: usize = 127 << 10;
const ENVIRONMENT: usize = 6 << 20;

pub(crate) fn measure() {
    title("hostile inputs (asks / whole plan)");
    let tree = Tree::build(&hosts()["deb550-8gpu"]).expect("a host");
    let mut config = Config::default();
    config.set("requirements", "warn").expect("a setting");
    config.set("accept-nvidia-visible-devices-as-volume-mounts", "true").expect("a setting");
    for (name, spec) in inputs() {
        let bytes = spec.to_string().into_bytes();
        let settings = ConfigSource::default();
        let asks = (0..ROUNDS).map(|_| timed(|| drop(request::asks(&bytes, &settings))));
        worst(&format!("{name}, asks"), asks.collect());
        let spec = Spec::new(spec);
        let planned = (0..ROUNDS).map(|_| {
            let host = tree.host();
            timed(|| drop(plan(&host, &config, Handler::Nvidia, &Image::default(), &spec)))
        });
        worst(&format!("{name}, plan"), planned.collect());
    }
}

fn worst(name: &str, times: Vec<std::time::Duration>) {
    let worst = times.into_iter().max().unwrap_or_default();
    line(name, LIMIT, &[worst], None);
}

fn inputs() -> Vec<(&'static str, Value)> {
    let all = "NVIDIA_VISIBLE_DEVICES=all".to_owned();
    let env = |env: Vec<String>| json!({"process": {"env": env}});
    let filled =
        |name: &str, item: &str, size: usize| format!("{name}={}", item.repeat(size / item.len()));
    let numbered = |name: &str, value: &str| -> Vec<String> {
        let size = name.len() + value.len() + 8;
        (0..ENVIRONMENT / size).map(|n| format!("{name}{n:06}={value}")).collect()
    };
    let with = |mut entries: Vec<String>| {
        entries.push(all.clone());
        env(entries)
    };
    let places = (0..100_000).map(|n| {
        let place = format!("/var/run/nvidia-container-devices/{n}");
        json!({"source": "/dev/null", "destination": place})
    });
    vec![
        ("list of indices", env(vec![filled("NVIDIA_VISIBLE_DEVICES", "0,", STRING)])),
        ("list of UUIDs", env(vec![filled("NVIDIA_VISIBLE_DEVICES", "GPU-a,", STRING)])),
        ("capabilities", with(vec![filled("NVIDIA_DRIVER_CAPABILITIES", "a,", STRING)])),
        ("alternatives", with(vec![filled("NVIDIA_REQUIRE_A", "arch>=9,brand=x ", STRING)])),
        ("requirements", with(numbered("NVIDIA_REQUIRE_", "brand=x"))),
        ("channels", with(vec![filled("NVIDIA_IMEX_CHANNELS", "1,", STRING)])),
        ("variables", with(numbered("A", ""))),
        ("volume mounts", json!({"mounts": places.collect::<Vec<_>>()})),
    ]
}
