use std::fs;
use std::process::Command;

use containerd_shim_protos::protobuf::well_known_types::any::Any;

use super::*;

const ASKS: &str = r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]}}"#;
const ASKS_NOT: &str = r#"{"process":{"env":["PATH=/bin"]}}"#;

/// A creator whose worker is a shell script; the bundle is its `$0`.
struct Scene {
    bundle: tempfile::TempDir,
    creator: Creator,
}

impl Scene {
    fn new(config: &str, worker: &'static str) -> Self {
        let bundle = tempfile::tempdir().unwrap();
        fs::write(bundle.path().join("config.json"), config).unwrap();
        let dir = bundle.path().to_owned();
        let worker = Worker::new(move || {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", worker]).arg(&dir);
            command
        });
        Self { creator: Creator::with(Handler::Nvidia, worker), bundle }
    }

    fn request(&self) -> CreateTaskRequest {
        let mut rootfs = ProtoMount { type_: "overlay".to_owned(), ..ProtoMount::default() };
        rootfs.special_fields.mut_unknown_fields().add_varint(77, 1);
        let mut request = CreateTaskRequest {
            id: "c1".to_owned(),
            bundle: self.bundle.path().to_str().unwrap().to_owned(),
            rootfs: vec![rootfs],
            checkpoint: "/checkpoint".to_owned(),
            ..CreateTaskRequest::default()
        };
        request.special_fields.mut_unknown_fields().add_varint(99, 1);
        request
    }

    fn judge(&self, request: &CreateTaskRequest) -> Verdict {
        self.creator.judge(&request.write_to_bytes().unwrap(), Some(Duration::from_secs(60)))
    }

    fn passes(&self) -> bool {
        self.judge(&self.request()) == Verdict::Pass
    }

    fn refused(&self) -> String {
        match self.judge(&self.request()) {
            Verdict::Refuse(refusal) => refusal.message().to_owned(),
            other => panic!("{other:?}"),
        }
    }
}

fn changed(verdict: Verdict) -> CreateTaskRequest {
    match verdict {
        Verdict::Change { payload, timeout } => {
            assert!(timeout.unwrap() < Duration::from_secs(60));
            CreateTaskRequest::parse_from_bytes(&payload).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

fn options(body: &[u8]) -> MessageField<Any> {
    let mut value = vec![0x1a, u8::try_from(body.len()).unwrap()];
    value.extend_from_slice(body);
    let type_url = "runtimeoptions.v1.Options".to_owned();
    MessageField::some(Any { type_url, value, ..Any::default() })
}

#[test]
fn a_container_that_asks_for_nothing_passes_without_a_worker() {
    let scene = Scene::new(ASKS_NOT, "exit 99");
    assert!(scene.passes());
    let sandbox = r#"{"annotations":{"io.kubernetes.cri.container-type":"sandbox"},
        "process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]}}"#;
    assert!(Scene::new(sandbox, "exit 99").passes());
}

#[test]
fn an_edited_container_keeps_everything_else() {
    let worker = r#"echo '{"edited":{"rootfs":[
        {"type":"overlay","source":"s","target":"","options":["lowerdir=/ours:/theirs"]},
        {"type":"bind","source":"b","target":"t","options":[]}
    ],"warnings":["w"],"summary":"s"}}'"#;
    let scene = Scene::new(ASKS, worker);
    let request = changed(scene.judge(&scene.request()));
    let mut expected = scene.request();
    expected.rootfs[0].source = "s".to_owned();
    expected.rootfs[0].options = vec!["lowerdir=/ours:/theirs".to_owned()];
    let (type_, source, target) = ("bind".to_owned(), "b".to_owned(), "t".to_owned());
    expected.rootfs.push(ProtoMount { type_, source, target, ..ProtoMount::default() });
    assert_eq!(request, expected);
}

#[test]
fn an_edited_container_with_the_same_root_filesystem_passes() {
    let worker = r#"echo '{"edited":{"rootfs":[
        {"type":"overlay","source":"","target":"","options":[]}],"warnings":[],"summary":""}}'"#;
    let scene = Scene::new(ASKS, worker);
    assert!(scene.passes());
}

#[test]
fn a_refusal_is_passed_on_as_it_was_worded() {
    let scene = Scene::new(ASKS, r#"echo '{"refused":{"message":"NVS-101: no GPU 9"}}'"#);
    assert_eq!(scene.refused(), "NVS-101: no GPU 9");
}

#[test]
fn a_worker_that_dies_after_its_edit_leaves_the_bundle_as_it_was() {
    let scene = Scene::new(
        ASKS,
        r#"cd "$0"; echo '{"edited":1}' | tee .config.json.Xy > config.json; kill -KILL $$"#,
    );
    assert!(scene.refused().contains("NVS-403: preparing container c1: "));
    assert_eq!(fs::read_to_string(scene.bundle.path().join("config.json")).unwrap(), ASKS);
    assert_eq!(fs::read_dir(scene.bundle.path()).unwrap().count(), 1);
}

#[test]
fn a_spec_that_cannot_be_read_is_refused_only_if_it_asks() {
    assert!(Scene::new("{broken", "exit 99").passes());
    let broken = Scene::new(r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=all""#, "exit 99");
    assert!(broken.refused().starts_with("NVS-001: "));
    let scene = Scene::new("{}", "exit 99");
    fs::remove_file(scene.bundle.path().join("config.json")).unwrap();
    assert!(scene.passes());
}

#[test]
fn a_message_that_cannot_be_read_is_an_invalid_argument() {
    let scene = Scene::new(ASKS_NOT, "exit 99");
    let Verdict::Refuse(refusal) = scene.creator.judge(&[0xff; 3], None) else { panic!() };
    let code = refusal.frame(1).unwrap().payload()[3];
    assert_eq!((code, refusal.message().contains("CreateTaskRequest")), (3, true));
}

#[test]
fn options_are_translated_for_everybody() {
    let scene = Scene::new(ASKS_NOT, "exit 99");
    let mut request = scene.request();
    request.options = options(b"Root = '/r'");
    let sent = changed(scene.judge(&request));
    assert_eq!(sent.options.type_url, "containerd.runc.v1.Options");
    assert_eq!(sent.options.value, b"\x3a\x02/r");
    request.options = sent.options.clone();
    assert_eq!(sent, request);
}

#[test]
fn broken_options_stop_only_those_who_ask() {
    for (config, stops) in [(ASKS, true), (ASKS_NOT, false)] {
        let scene = Scene::new(config, "exit 99");
        let mut request = scene.request();
        request.options = options(b"Root = ");
        match scene.judge(&request) {
            Verdict::Refuse(refusal) => {
                assert!(stops && refusal.message().starts_with("NVS-003: "));
            }
            verdict => {
                assert!(!stops);
                assert_eq!(changed(verdict).options.type_url, "containerd.runc.v1.Options");
            }
        }
    }
}

#[test]
fn a_worker_has_less_time_than_the_caller_waits() {
    let seconds = |timeout| deadline(Some(Duration::from_secs(timeout))).as_secs_f32();
    assert_eq!(deadline(None), DEADLINE);
    assert_eq!(seconds(60), 10.0);
    assert_eq!(seconds(7), 5.0);
    assert_eq!(seconds(3), 1.5);
    assert_eq!(deadline(Some(Duration::ZERO)), Duration::ZERO);
}

#[test]
fn what_is_wrong_with_the_options_of_a_pod_is_said_once() {
    let scene = Scene::new(ASKS_NOT, "exit 99");
    let mut request = scene.request();
    request.options = options(b"BinaryName = 'nvidia-container-runtime'");
    for _ in 0..3 {
        changed(scene.judge(&request));
    }
    assert_eq!(scene.creator.said.lock().unwrap().len(), 1);
}
