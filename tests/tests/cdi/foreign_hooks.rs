//! Hooks in specs of others.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nvidia_oci::{Code, CudaCompat};
use serde_json::{Value, json};

use crate::scene::Scene;

const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu/nvidia/current";

fn with_hooks(hooks: &Value) -> Scene {
    let library = format!("{LIBRARIES}/libcuda.so.535.261.03");
    let edits = json!({
        "hooks": hooks,
        "mounts": [{"hostPath": library, "containerPath": library, "options": ["ro", "rbind"]}],
    });
    Scene::on("deb535-2gpu")
        .described("a", "nvidia.com/gpu", &[("x", edits)])
        .asking("nvidia.com/gpu=x")
}

fn hook(path: &str, words: &[&str]) -> Value {
    json!({"hookName": "createContainer", "path": path, "args": words})
}

#[test]
fn what_nvidias_hooks_do_is_done_without_them() {
    let plan = with_hooks(&json!([
        hook(
            "/usr/bin/nvidia-cdi-hook",
            &["nvidia-cdi-hook", "create-symlinks", "--link", "a::/b/c"]
        ),
        hook("/none/nvidia-ctk", &["nvidia-ctk", "hook", "update-ldcache", "--folder", LIBRARIES]),
        hook("/x/nvidia-cdi-hook", &["", "enable-cuda-compat", "--host-driver-version=535.261.03"]),
        hook("/x/nvidia-cdi-hook", &["", "disable-device-node-modification"]),
        hook("/x/nvidia-cdi-hook", &["", "update-application-profile"]),
        hook("/x/nvidia-cdi-hook", &["", "chmod", "--mode", "755", "--path", "/dev/dri"]),
    ]))
    .plan();
    assert_eq!(plan.edits.hooks, []);
    let links: Vec<_> = plan
        .fixups
        .links
        .iter()
        .map(|it| (it.link.to_str().unwrap(), it.target.to_str().unwrap()))
        .collect();
    let soname = format!("{LIBRARIES}/libcuda.so.1");
    assert_eq!(links, [("/b/c", "a"), (soname.as_str(), "libcuda.so.535.261.03")]);
    assert_eq!(plan.fixups.library_dirs, [Path::new(LIBRARIES)]);
    let entry = &plan.fixups.libraries[0];
    assert_eq!((entry.soname.as_str(), entry.path.as_path()), ("libcuda.so.1", Path::new(&soname)));
    let compat = CudaCompat {
        driver: Some("535.261.03".to_owned()),
        cuda: None,
        directory: "/usr/local/cuda/compat".into(),
    };
    assert_eq!(plan.fixups.cuda_compat, Some(compat));
    assert!(plan.fixups.mask_params && plan.fixups.application_profile);
    assert_eq!(plan.report.warnings, [""; 0]);
}

#[test]
fn a_hook_of_a_later_version_is_kept_where_its_program_is() {
    let hooks = json!([hook("/usr/bin/nvidia-cdi-hook", &["nvidia-cdi-hook", "future", "--x"])]);
    let scene = with_hooks(&hooks);
    let program = scene.tree.host().join(Path::new("/usr/bin/nvidia-cdi-hook"));
    if program.exists() {
        fs::remove_file(&program).unwrap();
    }
    let plan = scene.plan();
    assert_eq!(plan.edits.hooks, []);
    assert!(plan.report.warnings[0].contains("\"future\" is not known"), "{}", plan.report);
    let scene = scene.file("/usr/bin/nvidia-cdi-hook", "");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let plan = scene.plan();
    assert_eq!(plan.edits.hooks.len(), 1);
    assert_eq!(plan.report.warnings, [""; 0]);
}

#[test]
fn another_hook_must_be_a_program() {
    let hooks = json!([
        {"hookName": "createContainer", "path": "/opt/vendor/hook", "args": ["hook"]},
        {"hookName": "createRuntime", "path": "/opt/vendor/hook", "env": ["A=1"], "timeout": 5},
        // A program of the container.
        {"hookName": "startContainer", "path": "/in/container"},
    ]);
    let scene = with_hooks(&hooks);
    let error = scene.refusal();
    assert_eq!(error.code(), Code::HookMissing);
    assert!(error.to_string().contains("/etc/cdi/a.json: hook /opt/vendor/hook"), "{error}");
    let scene = scene.file("/opt/vendor/hook", "");
    assert_eq!(scene.refusal().code(), Code::HookMissing);
    let program = scene.tree.host().join(Path::new("/opt/vendor/hook"));
    fs::set_permissions(program, Permissions::from_mode(0o755)).unwrap();
    let hooks = scene.edited()["hooks"].clone();
    // Never without environment: runc would give it the image's.
    let env = hooks["createContainer"][0]["env"][0].as_str().unwrap();
    assert!(env.starts_with("PATH="), "{env}");
    assert_eq!(
        hooks["createRuntime"],
        json!([{"path": "/opt/vendor/hook", "env": ["A=1"], "timeout": 5}])
    );
    assert_eq!(hooks["startContainer"], json!([{"path": "/in/container"}]));
}
