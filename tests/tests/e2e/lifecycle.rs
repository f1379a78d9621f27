//! What every runtime must do, whether or not a container asks for a GPU.

use tests::{BUSYBOX, Containerd, Release, on_each_containerd};

on_each_containerd!(runs_to_its_exit_code);

fn runs_to_its_exit_code(release: Release) {
    let containerd = Containerd::start(release);
    containerd.import(&BUSYBOX);
    let output =
        containerd.container(&BUSYBOX, "c").run(&["sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{output}");
    assert_eq!(output.stdout, "out\n");
    assert_eq!(output.stderr, "err\n");
    containerd.assert_clean();
}
