//! NVIDIA's kinds where no spec describes them.

use nvidia_oci::{Code, Handler};
use serde_json::json;

use crate::scene::{Scene, env, set};

const GPU_0: &[&str] = &["/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD128"];
const CONTROL: &[&str] =
    &["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"];

#[test]
fn one_gpu_has_one_meaning_by_every_name() {
    let nodes = |names: &str, handler| {
        let scene = Scene::on("deb535-2gpu").set("driver-capabilities", "all").handler(handler);
        let by_env = scene.asking(names).nodes();
        (by_env, Scene::on("deb535-2gpu").annotated(names).nodes())
    };
    let expected = nodes("0", Handler::NvidiaCdi).0;
    for handler in [Handler::Nvidia, Handler::NvidiaCdi] {
        for name in ["0", "runtime.nvidia.com/gpu=0", "nvidia.com/gpu=0", "nvidia.com/gpu=0,0"] {
            let (by_env, by_annotation) = nodes(name, handler);
            assert_eq!(by_env, expected, "{name} {handler}");
            assert_eq!(by_annotation, expected, "{name} {handler}");
        }
    }
    assert!(set(CONTROL).is_subset(&expected));
    assert_eq!(expected.len(), GPU_0.len() + CONTROL.len(), "{expected:?}");
}

#[test]
fn what_is_there_stands_beside_what_specs_describe() {
    let scene = Scene::on("deb535-2gpu")
        .described("a", "vendor.example/dev", &[("x", env("A=1"))])
        .annotated("vendor.example/dev=x,runtime.nvidia.com/gpu=1");
    let plan = scene.plan();
    assert!(plan.edits.env.contains(&("A".to_owned(), "1".to_owned())));
    assert!(scene.nodes().contains("/dev/nvidia1") && !scene.nodes().contains("/dev/nvidia0"));
    assert!(plan.edits.env.contains(&("NVIDIA_VISIBLE_DEVICES".to_owned(), "void".to_owned())));
}

#[test]
fn it_may_be_forbidden_but_by_its_own_name() {
    let scene = |names: &str| Scene::on("deb535-2gpu").set("just-in-time", "false").asking(names);
    for names in ["nvidia.com/gpu=0", "0", "all", "nvidia.com/gdrcopy=all"] {
        let error = scene(names).refusal();
        assert_eq!(error.code(), Code::UnknownDevice, "{names}: {error}");
    }
    assert!(scene("runtime.nvidia.com/gpu=0").nodes().contains("/dev/nvidia0"));
    // The contract of the environment is another.
    assert!(scene("0").handler(Handler::Nvidia).nodes().contains("/dev/nvidia0"));
}

#[test]
fn functions_are_their_nodes() {
    let scene = |name: &str| Scene::on("deb550-8gpu").annotated(name);
    let fs: Vec<String> = (0..4).map(|number| format!("/dev/nvidia-fs{number}")).collect();
    let fs: Vec<&str> = fs.iter().map(String::as_str).collect();
    let switches: Vec<String> =
        (0..6).map(|number| format!("/dev/nvidia-nvswitch{number}")).collect();
    let mut switches: Vec<&str> = switches.iter().map(String::as_str).collect();
    switches.push("/dev/nvidia-nvswitchctl");
    let verbs: Vec<String> =
        (0..4).map(|number| format!("/dev/infiniband/uverbs{number}")).collect();
    let mut verbs: Vec<&str> = verbs.iter().map(String::as_str).collect();
    verbs.push("/dev/infiniband/rdma_cm");
    let channel = |number: u32| format!("/dev/nvidia-caps-imex-channels/channel{number}");
    for (name, nodes) in [
        ("nvidia.com/gds=all", set(&fs)),
        ("nvidia.com/mofed=all", set(&verbs)),
        ("nvidia.com/gdrcopy=all", set(&["/dev/gdrdrv"])),
        ("nvidia.com/nvswitch=all", set(&switches)),
        ("nvidia.com/imex-channel=1", set(&[&channel(1)])),
        ("nvidia.com/imex-channel=channel2", set(&[&channel(2)])),
        ("runtime.nvidia.com/imex-channel=all", set(&[&channel(0), &channel(1), &channel(2)])),
    ] {
        assert_eq!(scene(name).nodes(), nodes, "{name}");
    }
    for (name, code) in [
        ("nvidia.com/imex-channel=7", Code::ImexChannel),
        ("nvidia.com/imex-channel=1048576", Code::UnknownDevice),
        ("nvidia.com/gds=0", Code::UnknownDevice),
        ("nvidia.com/future=all", Code::UnknownDevice),
        ("vendor.example/gds=all", Code::UnknownDevice),
    ] {
        assert_eq!(scene(name).refusal().code(), code, "{name}");
    }
    let error = Scene::on("deb535-2gpu").annotated("nvidia.com/gdrcopy=all").refusal();
    assert_eq!(error.code(), Code::FunctionMissing);
    // What a spec says goes before.
    let scene = scene("nvidia.com/gdrcopy=all").described(
        "g",
        "nvidia.com/gdrcopy",
        &[("all", env("A=1"))],
    );
    assert_eq!(scene.nodes(), set(&[]));
}

#[test]
fn who_may_manage_gets_every_node_and_no_other() {
    let all = "management.nvidia.com/gpu=all";
    let scene = || Scene::on("deb550-8gpu").asking(all);
    let error = scene().refusal();
    assert_eq!(error.code(), Code::Denied);
    let managing = scene().privileged();
    let nodes = managing.nodes();
    let mut expected: Vec<String> = (0..8).map(|number| format!("/dev/nvidia{number}")).collect();
    expected.extend(CONTROL.iter().map(|path| (*path).to_owned()));
    expected.extend([1, 2].map(|number| format!("/dev/nvidia-caps/nvidia-cap{number}")));
    expected
        .extend([0, 1, 2].map(|number| format!("/dev/nvidia-caps-imex-channels/channel{number}")));
    assert_eq!(nodes, expected.into_iter().collect());
    let mut listed = scene().set("management-namespaces", "gpu-operator");
    listed.spec["annotations"] = json!({"io.kubernetes.cri.sandbox-namespace": "gpu-operator"});
    assert_eq!(listed.nodes(), nodes);

    // The operator makes it the default of every bare `all`.
    let bare = || {
        Scene::on("deb550-8gpu")
            .set("nvidia-container-runtime.modes.cdi.default-kind", "management.nvidia.com/gpu")
            .asking("all")
    };
    assert_eq!(bare().privileged().nodes(), nodes);
    let own = [("own", env("MANAGES=1"))];
    let own = |scene: Scene| scene.described("m", "management.nvidia.com/gpu", &own).asking("own");
    assert_eq!(own(bare()).refusal().code(), Code::InvalidRequest);
    assert_eq!(own(bare()).privileged().plan().edits.env[0].0, "MANAGES");
    let given = bare().nodes();
    assert!(given.contains("/dev/nvidia7") && !given.contains("/dev/nvidia-caps/nvidia-cap1"));
}
