//! Pods through the CRI plugin: a sandbox and containers that share a shim.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tests::cri::Cri;
use tests::cri::messages::{
    ContainerConfig, ContainerState, KeyValue, NamespaceMode, NamespaceOption, PodSandboxConfig,
    PodSandboxState,
};
use tests::{BUSYBOX, Containerd, Node, Release, Setup, Sight, eventually, on_each_containerd};

on_each_containerd!(
    pod_with_two_containers,
    pod_outlives_containerd,
    pod_ends_with_its_inner_shim,
    refusal_reaches_the_kubelet,
);

/// A node with the CRI plugin, and the handler of its pods.
pub(crate) struct Cluster {
    // Before the node: shims look at it.
    pub(crate) containerd: Containerd,
    pub(crate) node: Node,
    pub(crate) cri: Cri,
    pod_config: PodSandboxConfig,
    handler: &'static str,
}

impl Cluster {
    fn new(release: Release) -> Self {
        let stock = tests::runtime() == "io.containerd.runc.v2";
        let node = Node::new(2);
        let setup = Setup { cri: true, node: Some(&node), ..Setup::default() };
        let containerd = Containerd::start_as(release, setup);
        Self::on(containerd, node, if stock { "runc" } else { "nvidia" })
    }

    /// Pods of the stock shim with our OCI runtime behind it.
    pub(crate) fn with_front(release: Release) -> Self {
        let node = Node::new(2);
        let setup = Setup { cri: true, host: Some(&node), ..Setup::default() };
        let containerd = Containerd::start_as(release, setup);
        Self::on(containerd, node, "front")
    }

    /// Pods of the stock shim and plain runc on a node that is the host itself.
    pub(crate) fn with_stock(release: Release) -> Self {
        let node = Node::new(2);
        let setup = Setup { cri: true, host: Some(&node), ..Setup::default() };
        let containerd = Containerd::start_as(release, setup);
        Self::on(containerd, node, "runc")
    }

    /// Pods of that handler.
    pub(crate) fn with_handler(release: Release, handler: &'static str) -> Self {
        let node = Node::new(2);
        let setup = Setup { cri: true, node: Some(&node), ..Setup::default() };
        let containerd = Containerd::start_as(release, setup);
        Self::on(containerd, node, handler)
    }

    fn on(containerd: Containerd, node: Node, handler: &'static str) -> Self {
        containerd.import(&BUSYBOX);
        let cri = Cri::connect(containerd.socket());
        let pod_config = pod_config(&containerd);
        Self { containerd, node, cri, pod_config, handler }
    }

    pub(crate) fn run_pod(&self) -> String {
        let mut pod = None;
        // The CRI plugin hears of an imported image some time after the import.
        let is_run = eventually(|| match self.cri.run_pod(&self.pod_config, self.handler) {
            Err(status) if status.message.contains("sandbox image") => false,
            run => {
                pod = Some(run.expect("RunPodSandbox"));
                true
            }
        });
        assert!(is_run, "no sandbox image");
        pod.expect("a pod that was run")
    }

    pub(crate) fn create(&self, pod: &str, name: &str, gpus: Option<&str>) -> String {
        self.create_as(pod, &container_config(name, gpus))
    }

    pub(crate) fn create_as(&self, pod: &str, config: &ContainerConfig) -> String {
        self.cri.create(pod, &self.pod_config, config).expect("CreateContainer")
    }

    pub(crate) fn look(&self, container: &str) -> Sight {
        let output = self.cri.exec(container, &["probe"]).expect("ExecSync");
        Sight::parse(&String::from_utf8_lossy(&output.stdout))
    }

    pub(crate) fn remove(&self, pod: &str) {
        self.cri.stop_pod(pod).expect("StopPodSandbox");
        self.cri.remove_pod(pod).expect("RemovePodSandbox");
        self.containerd.assert_clean();
    }
}

fn host_network() -> NamespaceOption {
    let mut namespaces = NamespaceOption::new();
    namespaces.network = NamespaceMode::NODE.into();
    namespaces
}

fn pod_config(containerd: &Containerd) -> PodSandboxConfig {
    let mut config = PodSandboxConfig::new();
    let metadata = config.metadata.mut_or_insert_default();
    metadata.name = "pod".to_owned();
    metadata.uid = containerd.name().to_owned();
    metadata.namespace = "default".to_owned();
    config.log_directory = containerd.path("pod-logs").display().to_string();
    let linux = config.linux.mut_or_insert_default();
    linux.cgroup_parent = format!("/{}", containerd.name());
    let security = linux.security_context.mut_or_insert_default();
    security.namespace_options = Some(host_network()).into();
    config
}

pub(crate) fn container_config(name: &str, gpus: Option<&str>) -> ContainerConfig {
    let mut config = ContainerConfig::new();
    config.metadata.mut_or_insert_default().name = name.to_owned();
    config.image.mut_or_insert_default().image = BUSYBOX.reference();
    config.command = ["sleep", "1000"].map(str::to_owned).to_vec();
    config.log_path = format!("{name}.log");
    config.envs.extend(gpus.map(|value| {
        let mut variable = KeyValue::new();
        variable.key = "NVIDIA_VISIBLE_DEVICES".to_owned();
        variable.value = value.to_owned();
        variable
    }));
    let linux = config.linux.mut_or_insert_default();
    let security = linux.security_context.mut_or_insert_default();
    security.namespace_options = Some(host_network()).into();
    config
}

fn pod_with_two_containers(release: Release) {
    let cluster = Cluster::new(release);
    let cri = &cluster.cri;
    assert_eq!(cri.version().expect("Version").runtime_name, "containerd");
    let pod = cluster.run_pod();
    let plain = cluster.create(&pod, "plain", None);
    let asking = cluster.create(&pod, "asking", Some("0"));
    for container in [&plain, &asking] {
        cri.start(container).expect("StartContainer");
    }
    assert_eq!(cri.list().expect("ListContainers").len(), 2);
    for container in [&plain, &asking] {
        let state = cri.status(container).expect("ContainerStatus").state.enum_value();
        assert_eq!(state, Ok(ContainerState::CONTAINER_RUNNING));
    }
    assert!(cluster.look(&plain).devices.is_empty());
    if cluster.handler == "nvidia" {
        let sight = cluster.look(&asking);
        let gpu = cluster.node.gpu(0).node();
        assert!(sight.nodes().contains(&gpu.as_str()), "{sight:?}");
        // One relay and one inner for the whole pod.
        let relays = cluster.containerd.processes("containerd-shim-nvidia-v2");
        assert_eq!(relays.len(), 1);
    }
    assert_eq!(cluster.containerd.processes("containerd-shim-runc-v2").len(), 1);

    let output = cri.exec(&asking, &["sh", "-c", "echo out; exit 5"]).expect("ExecSync");
    assert_eq!((output.stdout.as_slice(), output.exit_code), (&b"out\n"[..], 5));
    cri.stop(&plain).expect("StopContainer");
    let status = cri.status(&plain).expect("ContainerStatus");
    assert_eq!(status.state.enum_value(), Ok(ContainerState::CONTAINER_EXITED));
    assert_eq!(status.exit_code, 137);
    cri.remove(&plain).expect("RemoveContainer");
    cluster.remove(&pod);
}

fn pod_outlives_containerd(release: Release) {
    let mut cluster = Cluster::new(release);
    let pod = cluster.run_pod();
    let container = cluster.create(&pod, "c", Some("all"));
    cluster.cri.start(&container).expect("StartContainer");
    cluster.containerd.kill();
    cluster.containerd.launch();
    // The CRI plugin begins to answer when it has loaded the state of all pods.
    assert!(eventually(|| cluster.cri.pod_status(&pod).is_ok()));
    let state = cluster.cri.pod_status(&pod).expect("PodSandboxStatus").state.enum_value();
    assert_eq!(state, Ok(PodSandboxState::SANDBOX_READY));
    let output = cluster.cri.exec(&container, &["echo", "here"]).expect("ExecSync");
    assert_eq!(output.stdout, b"here\n");
    let later = cluster.create(&pod, "later", Some("1"));
    cluster.cri.start(&later).expect("StartContainer");
    cluster.remove(&pod);
}

fn pod_ends_with_its_inner_shim(release: Release) {
    let cluster = Cluster::new(release);
    let pod = cluster.run_pod();
    let container = cluster.create(&pod, "c", Some("0"));
    cluster.cri.start(&container).expect("StartContainer");
    for pid in cluster.containerd.processes("containerd-shim-runc-v2") {
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("kill");
    }
    let cri = &cluster.cri;
    assert!(eventually(|| {
        let state = cri.pod_status(&pod).expect("PodSandboxStatus").state.enum_value();
        state == Ok(PodSandboxState::SANDBOX_NOTREADY)
    }));
    assert!(eventually(|| {
        let state = cri.status(&container).expect("ContainerStatus").state.enum_value();
        state == Ok(ContainerState::CONTAINER_EXITED)
    }));
    // containerd 2.1 fails here while it looks for the dead shim, the stock one too; the kubelet
    // tries again.
    assert!(eventually(|| cri.stop_pod(&pod).is_ok() && cri.remove_pod(&pod).is_ok()));
    cluster.containerd.assert_clean();
}

fn refusal_reaches_the_kubelet(release: Release) {
    let cluster = Cluster::new(release);
    if cluster.handler == "runc" {
        return;
    }
    let pod = cluster.run_pod();
    let container = cluster.create(&pod, "c", Some("9"));
    let refusal = cluster.cri.start(&container).expect_err("GPU 9 does not exist");
    assert!(refusal.message.contains("NVS-101"), "{refusal:?}");
    assert!(!refusal.message.contains('\n'), "{refusal:?}");
    // The pod itself is not harmed.
    let other = cluster.create(&pod, "other", Some("1"));
    cluster.cri.start(&other).expect("StartContainer");
    cluster.remove(&pod);
}
