//! What every runtime must do, whether or not a container asks for a GPU.

use std::fs;
use std::process::Command;

use tests::{BUSYBOX, Containerd, Release, eventually, on_each_containerd};

on_each_containerd!(
    runs_to_its_exit_code,
    reads_its_standard_input,
    has_a_terminal,
    lives_and_is_killed,
    pauses_and_resumes,
    leaves_nothing_after_twenty_cycles,
    asks_for_nothing_and_is_not_touched,
);

const SLEEP: [&str; 2] = ["sleep", "1000"];

fn with_busybox(release: Release) -> Containerd {
    let containerd = Containerd::start(release);
    containerd.import(&BUSYBOX);
    containerd
}

fn runs_to_its_exit_code(release: Release) {
    let containerd = with_busybox(release);
    let script = "echo out; echo err >&2; exit 3";
    let output = containerd.container(&BUSYBOX, "c").run(&["sh", "-c", script]);
    assert_eq!(output.status.code(), Some(3), "{output}");
    assert_eq!(output.stdout, "out\n");
    assert_eq!(output.stderr, "err\n");
    let output = containerd.container(&BUSYBOX, "c").run(&["no-such-program"]);
    assert!(output.refused().contains("no-such-program"));
    containerd.assert_clean();
}

fn reads_its_standard_input(release: Release) {
    let containerd = with_busybox(release);
    let text = "a line\n".repeat(10_000);
    let output = containerd.container(&BUSYBOX, "c").run_fed(&["wc", "-c"], &text).ok();
    assert_eq!(output.trim(), text.len().to_string());
    containerd.assert_clean();
}

fn has_a_terminal(release: Release) {
    let containerd = with_busybox(release);
    let run = containerd.container(&BUSYBOX, "c").flag("--rm").flag("--tty");
    let command = run.command(&["sh", "-c", "'test -t 0 && stty size && echo terminal'"]);
    // ctr wants a terminal of its own: script(1) gives it one.
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let line: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &line.join(" "), "/dev/null"]);
    script.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = containerd.output(&mut script).ok();
    assert!(output.contains("terminal"), "{output}");
    containerd.assert_clean();
}

fn lives_and_is_killed(release: Release) {
    let containerd = with_busybox(release);
    containerd.container(&BUSYBOX, "c").detach(&SLEEP);
    assert_eq!(containerd.state("c").as_deref(), Some("RUNNING"));

    let output = containerd.exec("c", &["sh", "-c", "echo in; echo $PPID >&2; exit 4"]);
    assert_eq!((output.status.code(), output.stdout.as_str()), (Some(4), "in\n"), "{output}");
    let processes = containerd.ctr(&["tasks", "ps", "c"]).ok();
    assert_eq!(processes.lines().count(), 2, "{processes}");
    let metrics = containerd.ctr(&["tasks", "metrics", "--format", "json", "c"]).ok();
    assert!(metrics.to_lowercase().contains("memory"), "{metrics}");

    // PID 1 of a namespace takes only signals that it handles; SIGKILL from outside it cannot refuse.
    containerd.ctr(&["tasks", "kill", "--signal", "SIGKILL", "c"]).ok();
    assert!(eventually(|| containerd.state("c").as_deref() == Some("STOPPED")));
    let output = containerd.ctr(&["tasks", "delete", "c"]);
    assert!(output.success() && output.stderr.contains("137"), "{output}");
    assert_eq!(containerd.state("c"), None);
    containerd.remove("c");
    containerd.assert_clean();
}

fn pauses_and_resumes(release: Release) {
    let containerd = with_busybox(release);
    containerd.container(&BUSYBOX, "c").detach(&SLEEP);
    containerd.ctr(&["tasks", "pause", "c"]).ok();
    assert_eq!(containerd.state("c").as_deref(), Some("PAUSED"));
    containerd.ctr(&["tasks", "resume", "c"]).ok();
    assert_eq!(containerd.state("c").as_deref(), Some("RUNNING"));
    containerd.remove("c");
    containerd.assert_clean();
}

fn leaves_nothing_after_twenty_cycles(release: Release) {
    let containerd = with_busybox(release);
    for _ in 0..10 {
        containerd.container(&BUSYBOX, "a").detach(&SLEEP);
        containerd.container(&BUSYBOX, "b").run(&["true"]).ok();
        containerd.remove("a");
    }
    containerd.assert_clean();
}

fn asks_for_nothing_and_is_not_touched(release: Release) {
    let containerd = with_busybox(release);
    let config = containerd.bundle(containerd.name(), "c").join("config.json");
    let bytes = |runtime: &str, ask: Option<&str>| {
        let mut run = containerd.container(&BUSYBOX, "c").runtime(runtime);
        if let Some(value) = ask {
            run = run.gpus(value);
        }
        run.detach(&SLEEP);
        let bytes = fs::read(&config).expect("config.json");
        containerd.remove("c");
        containerd.assert_clean();
        bytes
    };
    for ask in [None, Some("void"), Some("")] {
        let written = bytes("io.containerd.runc.v2", ask);
        assert_eq!(bytes(&tests::runtime(), ask), written, "asking {ask:?}");
    }
}
