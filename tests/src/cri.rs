//! A small typed CRI client: messages made of `proto/cri.proto`, calls over HTTP/2 on the
//! daemon's socket.

use std::path::{Path, PathBuf};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use protobuf::Message;

use self::messages::*;

#[allow(clippy::all, clippy::pedantic, unreachable_pub, missing_debug_implementations)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/cri/mod.rs"));
}

pub use self::generated::cri as messages;

/// A refusal: the gRPC status code and what the daemon said.
#[derive(Debug)]
pub struct Status {
    pub code: i32,
    pub message: String,
}

/// A client of a daemon's CRI plugin.
pub struct Cri {
    socket: PathBuf,
    runtime: tokio::runtime::Runtime,
}

type Result<T> = std::result::Result<T, Status>;

impl Cri {
    pub fn connect(socket: impl Into<PathBuf>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        Self { socket: socket.into(), runtime: runtime.expect("a runtime") }
    }

    pub fn version(&self) -> Result<VersionResponse> {
        self.call("Version", &VersionRequest::new())
    }

    pub fn run_pod(&self, config: &PodSandboxConfig, handler: &str) -> Result<String> {
        let mut request = RunPodSandboxRequest::new();
        request.config = Some(config.clone()).into();
        handler.clone_into(&mut request.runtime_handler);
        let answer: RunPodSandboxResponse = self.call("RunPodSandbox", &request)?;
        Ok(answer.pod_sandbox_id)
    }

    pub fn pod_status(&self, pod: &str) -> Result<PodSandboxStatus> {
        let mut request = PodSandboxStatusRequest::new();
        pod.clone_into(&mut request.pod_sandbox_id);
        let answer: PodSandboxStatusResponse = self.call("PodSandboxStatus", &request)?;
        Ok(answer.status.unwrap_or_default())
    }

    pub fn stop_pod(&self, pod: &str) -> Result<()> {
        let mut request = StopPodSandboxRequest::new();
        pod.clone_into(&mut request.pod_sandbox_id);
        self.call::<StopPodSandboxResponse>("StopPodSandbox", &request).map(drop)
    }

    pub fn remove_pod(&self, pod: &str) -> Result<()> {
        let mut request = RemovePodSandboxRequest::new();
        pod.clone_into(&mut request.pod_sandbox_id);
        self.call::<RemovePodSandboxResponse>("RemovePodSandbox", &request).map(drop)
    }

    pub fn create(
        &self,
        pod: &str,
        pod_config: &PodSandboxConfig,
        config: &ContainerConfig,
    ) -> Result<String> {
        let mut request = CreateContainerRequest::new();
        pod.clone_into(&mut request.pod_sandbox_id);
        request.config = Some(config.clone()).into();
        request.sandbox_config = Some(pod_config.clone()).into();
        let answer: CreateContainerResponse = self.call("CreateContainer", &request)?;
        Ok(answer.container_id)
    }

    pub fn start(&self, container: &str) -> Result<()> {
        let mut request = StartContainerRequest::new();
        container.clone_into(&mut request.container_id);
        self.call::<StartContainerResponse>("StartContainer", &request).map(drop)
    }

    /// Kills at once.
    pub fn stop(&self, container: &str) -> Result<()> {
        let mut request = StopContainerRequest::new();
        container.clone_into(&mut request.container_id);
        self.call::<StopContainerResponse>("StopContainer", &request).map(drop)
    }

    pub fn remove(&self, container: &str) -> Result<()> {
        let mut request = RemoveContainerRequest::new();
        container.clone_into(&mut request.container_id);
        self.call::<RemoveContainerResponse>("RemoveContainer", &request).map(drop)
    }

    pub fn list(&self) -> Result<Vec<Container>> {
        let answer: ListContainersResponse =
            self.call("ListContainers", &ListContainersRequest::new())?;
        Ok(answer.containers)
    }

    pub fn status(&self, container: &str) -> Result<ContainerStatus> {
        let mut request = ContainerStatusRequest::new();
        container.clone_into(&mut request.container_id);
        let answer: ContainerStatusResponse = self.call("ContainerStatus", &request)?;
        Ok(answer.status.unwrap_or_default())
    }

    pub fn exec(&self, container: &str, program: &[&str]) -> Result<ExecSyncResponse> {
        let mut request = ExecSyncRequest::new();
        container.clone_into(&mut request.container_id);
        request.cmd = program.iter().map(|&word| word.to_owned()).collect();
        request.timeout = 30;
        self.call("ExecSync", &request)
    }

    fn call<A: Message>(&self, method: &str, request: &impl Message) -> Result<A> {
        let request = request.write_to_bytes().expect("a message");
        let answer = self.runtime.block_on(unary(&self.socket, method, &request));
        let (status, bytes) = answer.unwrap_or_else(|error| panic!("{method}: {error}"));
        match status.code {
            0 => Ok(A::parse_from_bytes(&bytes).expect(method)),
            _ => Err(status),
        }
    }
}

/// One gRPC call on a connection of its own: a message is a flag byte, its length and its bytes;
/// the status comes in the trailers.
async fn unary(
    socket: &Path,
    method: &str,
    message: &[u8],
) -> std::result::Result<(Status, Vec<u8>), Box<dyn std::error::Error>> {
    let stream = tokio::net::UnixStream::connect(socket).await?;
    let (client, connection) = h2::client::handshake(stream).await?;
    let request =
        http::Request::post(format!("http://localhost/runtime.v1.RuntimeService/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len())?);
    frame.put_slice(message);
    let exchange = async {
        let mut client = client.ready().await?;
        let (answer, mut body) = client.send_request(request, false)?;
        body.send_data(frame.freeze(), true)?;
        let (head, mut body) = answer.await?.into_parts();
        let mut bytes = Vec::new();
        while let Some(chunk) = body.data().await {
            let chunk: Bytes = chunk?;
            body.flow_control().release_capacity(chunk.len())?;
            bytes.extend_from_slice(&chunk);
        }
        // An answer without a message has its status in the only header block.
        let trailers = body.trailers().await?.unwrap_or(head.headers);
        Ok::<_, h2::Error>((trailers, bytes))
    };
    let exchange = std::pin::pin!(exchange);
    let connection = std::pin::pin!(connection);
    let (trailers, bytes) = until_first(exchange, connection).await??;
    let text = |name: &str| trailers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let status = Status {
        code: text("grpc-status").parse().unwrap_or(-1),
        message: percent_decoded(text("grpc-message")),
    };
    let mut bytes = Bytes::from(bytes);
    let bytes = if bytes.len() < 5 { Bytes::new() } else { bytes.split_off(5) };
    Ok((status, bytes.chunk().to_vec()))
}

/// Drives the connection until the exchange is done.
async fn until_first<T>(
    mut exchange: impl Future<Output = T> + Unpin,
    mut connection: impl Future<Output = std::result::Result<(), h2::Error>> + Unpin,
) -> std::result::Result<T, h2::Error> {
    use std::task::Poll;
    let mut open = true;
    std::future::poll_fn(move |context| {
        if open && let Poll::Ready(end) = std::pin::Pin::new(&mut connection).poll(context) {
            end?;
            open = false;
        }
        std::pin::Pin::new(&mut exchange).poll(context).map(Ok)
    })
    .await
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
