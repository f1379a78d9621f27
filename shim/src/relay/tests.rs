use std::io::{Read, Write};
use std::net::Shutdown;

use proptest::prelude::*;

use super::*;
use crate::frame::{Frame, Header, MAX_PAYLOAD, REQUEST, RESPONSE};
use scene::{Scene, V2, V3, create, request, response};

mod scene;

const ASKS: &str = r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]}}"#;
const ASKS_NOT: &str = r#"{"process":{"env":["PATH=/bin"]}}"#;
const NO_WORKER: &str = "exit 99";

#[test]
fn frames_pass_as_they_are() {
    let scene = Scene::new(NO_WORKER);
    let mut client = scene.connect();
    let mut inner = scene.accept();
    let frame = |kind, stream, flags, payload: &[u8]| Frame::new(kind, stream, flags, payload);
    let frames = [
        frame(REQUEST, 1, 2, b"no protobuf at all").unwrap(),
        request(3, "containerd.services.later.v9.Other", "Create", b"x"),
        frame(3, 3, 1, b"data of a stream").unwrap(),
        frame(3, 3, 5, b"").unwrap(),
        frame(77, u32::MAX, 255, b"of the future").unwrap(),
        frame(REQUEST, 5, 0, &vec![0xff; MAX_PAYLOAD as usize]).unwrap(),
    ];
    for sent in &frames {
        client.write(sent);
        assert_eq!(inner.read().as_ref(), Some(sent));
        inner.write(sent);
        assert_eq!(client.read().as_ref(), Some(sent));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_frames_pass_both_ways_at_once(
        frames in prop::collection::vec(
            (any::<u8>(), any::<u32>(), any::<u8>(), 0_usize..70_000),
            0..6,
        ),
    ) {
        let scene = Scene::new(NO_WORKER);
        let client = scene.connect();
        let inner = scene.accept();
        let wire: Vec<u8> = frames
            .iter()
            .flat_map(|(kind, stream, flags, length)| {
                let payload = vec![kind ^ flags; *length];
                Frame::new(*kind, *stream, *flags, &payload).unwrap().bytes().to_vec()
            })
            .collect();
        let exchange = |mut end: UnixStream| {
            let mut sender = end.try_clone().unwrap();
            let sent = wire.clone();
            let sender = thread::spawn(move || {
                sender.write_all(&sent).unwrap();
                sender.shutdown(Shutdown::Write).unwrap();
            });
            thread::spawn(move || {
                let mut read = Vec::new();
                end.read_to_end(&mut read).unwrap();
                sender.join().unwrap();
                read
            })
        };
        let ends = [exchange(client.stream.try_clone().unwrap()), exchange(inner.stream.try_clone().unwrap())];
        for end in ends {
            prop_assert_eq!(end.join().unwrap(), wire.clone());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn bytes_that_are_no_frames_end_their_own_connection_only(
        bytes in prop::collection::vec(any::<u8>(), 0..500),
        message in prop::collection::vec(any::<u8>(), 0..100),
        // Up to a promise of 4 GiB that nobody keeps.
        length in any::<u32>(),
    ) {
        let scene = Scene::new(NO_WORKER);
        let header = Header { length, stream: 1, kind: REQUEST, flags: 0 };
        for wire in [
            bytes.clone(),
            [&header.to_bytes()[..], &bytes].concat(),
            Frame::new(REQUEST, 0, 0, &bytes).unwrap().bytes().to_vec(),
            [request(1, V3, "Create", &message).bytes(), &bytes].concat(),
        ] {
            let mut client = scene.connect();
            let inner = scene.accept();
            client.stream.write_all(&wire).unwrap();
            client.stream.shutdown(Shutdown::Both).unwrap();
            let (mut inner, mut rest) = (inner.stream, Vec::new());
            // To the end of the connection.
            inner.read_to_end(&mut rest).unwrap();
        }
        let (mut client, mut inner) = (scene.connect(), scene.accept());
        let sent = request(1, V3, "State", b"x");
        client.write(&sent);
        prop_assert_eq!(inner.read().unwrap(), sent);
    }
}

#[test]
fn answers_come_in_any_order() {
    let scene = Scene::new(NO_WORKER);
    let mut client = scene.connect();
    let mut inner = scene.accept();
    client.write(&request(1, V3, "Wait", b""));
    client.write(&request(3, V3, "State", b""));
    inner.read();
    inner.read();
    for stream in [3, 1] {
        inner.write(&response(stream, "answer"));
        assert_eq!(client.read(), Some(response(stream, "answer")));
    }
}

#[test]
fn the_task_service_gets_the_name_that_the_inner_shim_knows() {
    for (served, name) in [(V3, V3), (V2, V2)] {
        let scene = Scene::new(NO_WORKER);
        let mut client = scene.connect();
        let mut inner = scene.accept();
        client.write(&request(1, V2, "State", b"x"));
        scene.be(served);
        assert_eq!(inner.read(), Some(request(1, name, "State", b"x")));
        // Asked once; a name that is not the old one is never changed.
        client.write(&request(3, V3, "State", b"x"));
        assert_eq!(inner.read(), Some(request(3, V3, "State", b"x")));
        let bundle = scene.bundle(ASKS_NOT);
        client.write(&create(5, V2, &bundle));
        assert_eq!(inner.read(), Some(create(5, name, &bundle)));
    }
}

#[test]
fn an_oversize_request_is_refused_and_the_connection_goes_on() {
    let scene = Scene::new(NO_WORKER);
    let mut client = scene.connect();
    let mut inner = scene.accept();
    let header = Header { length: MAX_PAYLOAD + 7, stream: 1, kind: REQUEST, flags: 0 };
    client.stream.write_all(&header.to_bytes()).unwrap();
    client.stream.write_all(&vec![0; header.length as usize]).unwrap();
    let (code, message) = client.refusal(1);
    assert_eq!((code, message.contains("4194311")), (8, true));
    client.write(&request(3, V3, "State", b""));
    assert_eq!(inner.read(), Some(request(3, V3, "State", b"")));
}

#[test]
fn an_oversize_answer_passes() {
    let scene = Scene::new(NO_WORKER);
    let mut client = scene.connect();
    let mut inner = scene.accept();
    let header = Header { length: MAX_PAYLOAD + 7, stream: 1, kind: RESPONSE, flags: 0 };
    let mut wire = header.to_bytes().to_vec();
    wire.resize(wire.len() + header.length as usize, 9);
    let expected = wire.clone();
    let sender = thread::spawn(move || inner.stream.write_all(&wire).unwrap());
    let mut read = vec![0; expected.len()];
    client.stream.read_exact(&mut read).unwrap();
    assert!(read == expected);
    sender.join().unwrap();
}

#[test]
fn ends_are_passed_on() {
    let scene = Scene::new(NO_WORKER);
    // containerd has finished sending, and still gets its answer.
    let mut client = scene.connect();
    let mut inner = scene.accept();
    client.write(&request(1, V3, "Wait", b""));
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert!(inner.read().is_some());
    assert_eq!(inner.read(), None);
    inner.write(&response(1, "late"));
    assert_eq!(client.read(), Some(response(1, "late")));
    drop(inner);
    assert_eq!(client.read(), None);

    // containerd is gone.
    let client = scene.connect();
    let mut inner = scene.accept();
    drop(client);
    assert_eq!(inner.read(), None);

    // The inner shim has closed the connection.
    let mut client = scene.connect();
    drop(scene.accept());
    assert_eq!(client.read(), None);
}

#[test]
fn a_refused_create_leaves_the_other_streams_alone() {
    let scene = Scene::new(r#"echo '{"refused":{"message":"NVS-101: no such GPU"}}'"#);
    let bundle = scene.bundle(ASKS);
    let mut client = scene.connect();
    let mut inner = scene.accept();
    client.write(&request(1, V3, "Wait", b""));
    inner.read();
    for stream in (3..43).step_by(2) {
        client.write(&create(stream, V3, &bundle));
        inner.write(&response(1, "noise"));
        let mut got = [client.read().unwrap(), client.read().unwrap()];
        got.sort_by_key(|frame| frame.header().stream);
        assert_eq!(got[0], response(1, "noise"));
        assert_eq!(got[1].header().stream, stream);
        assert!(String::from_utf8_lossy(got[1].payload()).contains("NVS-101: no such GPU"));
    }
    assert_eq!(std::fs::read(bundle.join("config.json")).unwrap(), ASKS.as_bytes());
    // What follows reaches the inner shim, which has seen none of the Creates.
    client.write(&request(43, V3, "State", b""));
    assert_eq!(inner.read(), Some(request(43, V3, "State", b"")));
}

#[test]
fn a_create_that_is_worked_on_holds_up_its_own_connection_only() {
    let scene = Scene::new("exit 99");
    let gate = scene.path().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let answer = r#"{"untouched":{"warnings":[]}}"#;
    let script = format!("read line < {}; echo '{answer}'", gate.display());
    let scene = Scene::new(&script);
    let bundle = scene.bundle(ASKS);
    let mut slow = scene.connect();
    let mut slow_inner = scene.accept();
    slow.write(&create(1, V3, &bundle));
    slow.write(&request(3, V3, "State", b""));

    let mut quick = scene.connect();
    let mut quick_inner = scene.accept();
    quick.write(&request(1, V3, "Kill", b""));
    assert_eq!(quick_inner.read(), Some(request(1, V3, "Kill", b"")));
    quick_inner.write(&response(1, "killed"));
    assert_eq!(quick.read(), Some(response(1, "killed")));

    std::fs::write(&gate, "go\n").unwrap();
    assert_eq!(slow_inner.read(), Some(create(1, V3, &bundle)));
    assert_eq!(slow_inner.read(), Some(request(3, V3, "State", b"")));
}

#[test]
fn a_relay_outlives_its_connections_and_ends_with_its_inner_shim() {
    let scene = Scene::new(NO_WORKER);
    for stream in [1, 3] {
        let mut client = scene.connect();
        let mut inner = scene.accept();
        inner.write(&response(stream, "x"));
        client.read();
    }
    let mut client = scene.connect();
    let inner = scene.accept();
    let remains = scene.die("");
    drop(inner);
    assert_eq!(client.read(), None);
    remains.wait();
}

#[test]
fn an_inner_shim_that_never_was_up_is_the_answer_to_create() {
    // containerd comes when it is dead already.
    let remains = Scene::new(NO_WORKER).die("no runc here");
    drop(remains.connect());
    let mut client = remains.connect();
    client.write(&create(1, V2, Path::new("/nonexistent")));
    let (code, message) = client.refusal(1);
    assert_eq!(code, 9);
    assert!(message.starts_with("NVS-401: no runc here; "), "{message}");
    assert_eq!(client.read(), None);
    remains.wait();
}

#[test]
fn an_inner_shim_that_dies_before_the_create_comes_is_its_answer() {
    let scene = Scene::new(NO_WORKER);
    let mut client = scene.connect();
    drop(scene.accept());
    let remains = scene.die("no runc here");
    client.write(&create(1, V2, Path::new("/nonexistent")));
    assert_eq!(client.refusal(1).0, 9);
    assert_eq!(client.read(), None);
    remains.wait();
}

#[test]
fn an_inner_shim_that_dies_at_a_create_is_its_answer() {
    for version in [V2, V3] {
        let scene = Scene::new(NO_WORKER);
        let bundle = scene.bundle(ASKS_NOT);
        let mut client = scene.connect();
        let mut inner = scene.accept();
        inner.write(&response(99, "alive"));
        client.read();
        client.write(&create(1, version, &bundle));
        // It has come as far as the inner shim, or the question what that speaks.
        if version == V3 {
            inner.read();
        } else {
            drop(scene.accept());
        }
        let remains = scene.die("killed");
        drop(inner);
        let (code, message) = client.refusal(1);
        assert_eq!((code, message.contains("killed")), (9, true));
        drop(client);
        remains.wait();
    }
}

#[test]
fn a_panic_at_a_create_is_an_answer() {
    // A worker whose start panics, as a bug in the Create handler would.
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), ASKS).unwrap();
    let worker = crate::worker::Worker::new(|| panic!("a bug"));
    let creator = Creator::with(nvidia_oci::Handler::Nvidia, worker);
    let frame = create(1, V3, dir.path());
    let parsed = crate::frame::request::Request::parse(frame.payload()).unwrap();
    let verdict = creator.judge(parsed.payload(frame.payload()), None);
    let crate::create::Verdict::Refuse(refusal) = verdict else { panic!("{verdict:?}") };
    assert!(refusal.message().starts_with("NVS-403: the shim failed at a Create: a bug"));
}
